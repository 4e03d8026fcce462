// Trackers of metrics, selected by training.report_to.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "monitor/record.h"

namespace lockstep::monitor {

struct MonitorOptions;

/// Creates a destination for each name in options.report_to: "tensorboard", "wandb" or "mlflow".
/// "all" selects all of them (MLflow only if environment variables name a server). "none" or an
/// empty list selects none. If environment variables name a Kubeflow TrainJob, also creates a
/// destination for it. `resumed` is true if the run continues from a checkpoint. Throws Error
/// (config) that lists unknown names.
std::vector<std::unique_ptr<MetricsSink>> make_trackers(
    const MonitorOptions& options, double wall_time, bool resumed);
/// Sends data of the run in `folder` that the MLflow server or the OpenTelemetry collector did not
/// receive during training. `otlp` is the collector's address, or empty. Returns true if no data is
/// left. Throws Error (config) if there is data for an MLflow server and environment variables do
/// not name one.
bool send_what_is_kept(const std::filesystem::path& folder, const std::string& otlp);
/// Returns the problems of a `report_to` list. Empty if it is valid. Used to check a configuration
/// before the run.
std::vector<std::string> problems_of_report_to(const std::vector<std::string>& report_to);

/// Converts the name of a metric for trackers, like the Trainer's callbacks: eval_loss ->
/// eval/loss, loss -> train/loss.
std::string tracker_name(std::string_view name);
/// Calls `visit` for each value of a JSON object that is not an object. Keys are joined by dots.
void visit_leaves(
    const nlohmann::json& object,
    const std::function<void(const std::string& name, const nlohmann::json& leaf)>& visit);
/// Returns the string at a key, or an empty one if there is none.
std::string text_at(const nlohmann::json& object, const char* key);
/// Returns the name of this machine.
std::string host_name();
/// Formats a time in the local time zone with strftime.
std::string format_time(const char* format, double wall_time);

}  // namespace lockstep::monitor
