// MLflow file store ("mlruns"). Each run has a folder of small text files.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "monitor/mlflow.h"

namespace lockstep::monitor {

/// Run in a file store. MLflow's client and `mlflow ui --backend-store-uri mlruns` can read it
/// during and after training.
class MlflowFolder : public MetricsSink {
 public:
  /// If `resumed`, continues the run in mlflow.json if it is still in the store. Throws Error if
  /// the folders cannot be created.
  MlflowFolder(const MlflowOptions& options, bool resumed);

  void log(const Record& record) override;
  void log_event(std::string_view name, double wall_time) override;

 private:
  void write_run(const std::string& status, double end_time);

  MlflowOptions options_;
  std::string experiment_, run_id_;
  std::filesystem::path folder_;  // the run's folder
  std::map<std::string, std::ofstream> metrics_;
};

}  // namespace lockstep::monitor
