// A folder of runs as MLflow's file store has them ("mlruns"): a folder each, of small text files.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "monitor/mlflow.h"

namespace lockstep::monitor {

/// A run there. MLflow's own client and `mlflow ui --backend-store-uri mlruns` read it, while it
/// trains and after.
class MlflowFolder : public MetricsSink {
 public:
  /// `resumed`: the run of mlflow.json goes on, if the store still has it. Throws Error where the
  /// folders cannot be made.
  MlflowFolder(const MlflowOptions& options, bool resumed);

  void log(const Record& record) override;
  void log_event(std::string_view name, double wall_time) override;

 private:
  void write_run(const std::string& status, double end_time);

  MlflowOptions options_;
  std::string experiment_, run_id_;
  std::filesystem::path folder_;  // of the run
  std::map<std::string, std::ofstream> metrics_;
};

}  // namespace lockstep::monitor
