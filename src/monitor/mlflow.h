// MLflow tracking with the REST API (2.0). mlflow_folder.h implements local folders of runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "monitor/http_client.h"
#include "monitor/outbox.h"
#include "monitor/record.h"

namespace lockstep::monitor {

/// Destination of a run. It is set by MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN or
/// MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, MLFLOW_EXPERIMENT_NAME, and MLFLOW_TAGS
/// (a JSON object). The variables have the same meaning as in MLflow's own client and the Trainer's
/// callback.
struct MlflowOptions {
  std::filesystem::path folder{};  // the run's folder, for mlflow.json and the outbox
  std::string address{};           // http:// or https://; empty: `store` is used
  std::filesystem::path store{};   // folder of runs, such as "mlruns" or "file:///data/mlruns"
  std::string token{}, user{}, password{};
  std::string experiment{};
  std::string name{};  // empty: chosen by MLflow
  std::map<std::string, std::string> tags{};
  std::string configuration_json{};  // its leaves are logged as parameters
  double start_time = 0;             // seconds since 1970
};

/// Returns `options` with the settings of the environment variables. Throws Error (config) if they
/// name neither a server nor a folder, or if MLFLOW_TAGS is not a JSON object of strings.
MlflowOptions mlflow_options_from_environment(
    MlflowOptions options, const std::map<std::string, std::string>& environment);
/// Returns the names of the environment variables that are read.
const std::vector<const char*>& mlflow_variables();

/// Converts a name to one that MLflow accepts: letters, digits and "_-. :/", in the form of a path
/// within the store.
std::string mlflow_name(std::string name);
/// Returns the leaves of the configuration by dotted name.
std::map<std::string, std::string> mlflow_parameters(const MlflowOptions& options);
/// Returns "FINISHED", "FAILED" or "KILLED" for an event that ends a run, otherwise nullopt.
std::optional<std::string> mlflow_end(std::string_view event);
/// Converts seconds to milliseconds since 1970.
int64_t mlflow_time(double seconds);

/// Sends the outbox's lines to an MLflow server. Not thread-safe, except for cancel().
class MlflowSender {
 public:
  explicit MlflowSender(const MlflowOptions& options);
  /// Implements Outbox::Send.
  void send(const std::vector<std::string>& lines);
  void cancel() { client_.cancel(); }

 private:
  /// How to treat the replies "does not exist" and "already exists".
  enum class Missing { kError, kTold };
  /// Sends a request. With kTold, these replies are returned as {"error_code": ..}; otherwise they
  /// are errors.
  nlohmann::json ask(
      const std::string& path, const std::string& body, Missing missing = Missing::kError);
  std::string experiment_id(const std::string& name);
  void begin(const nlohmann::json& run);
  void log_batch(const char* kind, const nlohmann::json& entries);
  void end(const nlohmann::json& run);

  std::filesystem::path run_file_;  // mlflow.json: {"run_id": ..}
  std::string address_, run_id_;
  bool lacks_parameters_ = false;  // the run was created, but its parameters were not sent yet
  HttpClient client_;
};

/// Run on an MLflow server. Data that cannot be sent is stored. It is sent when the server answers
/// again, when the run is resumed, or by `lockstep sync`.
class MlflowRun : public MetricsSink {
 public:
  /// If `resumed`, continues the run in mlflow.json, if any.
  MlflowRun(const MlflowOptions& options, bool resumed);

  void log(const Record& record) override;
  void log_event(std::string_view name, double wall_time) override;
  void finish() override { outbox_.finish(); }

 private:
  MlflowSender sender_;
  Outbox outbox_;
};

/// Returns the path of the file with unsent data.
std::filesystem::path mlflow_outbox(const std::filesystem::path& folder);

}  // namespace lockstep::monitor
