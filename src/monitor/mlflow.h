// MLflow: its tracking server, over the REST API (2.0); folders of runs are mlflow_folder.h's.
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

/// Where a run goes. MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN or MLFLOW_TRACKING_USERNAME and
/// MLFLOW_TRACKING_PASSWORD, MLFLOW_EXPERIMENT_NAME and MLFLOW_TAGS (a JSON object) say it as they
/// do to MLflow's own client and the Trainer's callback.
struct MlflowOptions {
  std::filesystem::path folder{};  // the run's, which keeps mlflow.json and the outbox
  std::string address{};           // http:// or https://
  std::filesystem::path store{};   // or a folder of runs: "mlruns", "file:///data/mlruns"
  std::string token{}, user{}, password{};
  std::string experiment{};
  std::string name{};  // empty: MLflow draws one
  std::map<std::string, std::string> tags{};
  std::string configuration_json{};  // its leaves become the run's parameters
  double start_time = 0;             // seconds since 1970
};

/// What the environment has set over `options`. Throws Error(kConfig) where it names neither a
/// server nor a folder, or MLFLOW_TAGS is no object of texts.
MlflowOptions mlflow_options_from_environment(
    MlflowOptions options, const std::map<std::string, std::string>& environment);
/// The variables that it asks for.
const std::vector<const char*>& mlflow_variables();

/// A name as MLflow takes it: of letters, digits and "_-. :/", and a path that stays where it is.
std::string mlflow_name(std::string name);
/// The leaves of the configuration by name.
std::map<std::string, std::string> mlflow_parameters(const MlflowOptions& options);
/// "FINISHED", "FAILED", "KILLED" for an event that ends a run; else nothing.
std::optional<std::string> mlflow_end(std::string_view event);
/// Milliseconds since 1970.
int64_t mlflow_time(double seconds);

/// Sends the outbox's lines. For one thread, but for cancel().
class MlflowSender {
 public:
  explicit MlflowSender(const MlflowOptions& options);
  /// As Outbox::Send.
  void send(const std::vector<std::string>& lines);
  void cancel() { client_.cancel(); }

 private:
  /// What an answer is that something is not there, or there already.
  enum class Missing { kError, kTold };
  /// Told: {"error_code": ..}.
  nlohmann::json ask(
      const std::string& path, const std::string& body, Missing missing = Missing::kError);
  std::string experiment_id(const std::string& name);
  void begin(const nlohmann::json& run);
  void log_batch(const char* kind, const nlohmann::json& entries);
  void end(const nlohmann::json& run);

  std::filesystem::path run_file_;  // mlflow.json: {"run_id": ..}
  std::string address_, run_id_;
  bool lacks_parameters_ = false;  // the run was made, and has not got them
  HttpClient client_;
};

/// A run there. What cannot be sent is kept, and sent when the server answers, when the run is
/// resumed, or by `lockstep sync`.
class MlflowRun : public MetricsSink {
 public:
  /// `resumed`: the run of mlflow.json goes on, if there is one.
  MlflowRun(const MlflowOptions& options, bool resumed);

  void log(const Record& record) override;
  void log_event(std::string_view name, double wall_time) override;
  void finish() override { outbox_.finish(); }

 private:
  MlflowSender sender_;
  Outbox outbox_;
};

/// The file of what an earlier attempt could not send.
std::filesystem::path mlflow_outbox(const std::filesystem::path& folder);

}  // namespace lockstep::monitor
