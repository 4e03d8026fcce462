// Metrics trackers selected by training.report_to.
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

/// Creates a sink for each name in options.report_to: "tensorboard", "wandb", "mlflow". "all"
/// selects all of them (MLflow only if the environment names a server), "none" or an empty list
/// none. Adds a sink for the TrainJob named by the environment, if any. `resumed`: the run
/// continues from a checkpoint. Throws Error (config) that lists unknown names.
std::vector<std::unique_ptr<MetricsSink>> make_trackers(
    const MonitorOptions& options, double wall_time, bool resumed);
/// Sends stored data of the run in `folder` that MLflow's server or the OpenTelemetry collector
/// (`otlp`, an address; may be empty) did not receive during training. Returns true if nothing is
/// left. Throws Error (config) if there is data for an MLflow server and the environment names
/// none.
bool send_what_is_kept(const std::filesystem::path& folder, const std::string& otlp);
/// Returns the problems of a `report_to` list; empty if it is valid. Used to check a configuration
/// before the run.
std::vector<std::string> problems_of_report_to(const std::vector<std::string>& report_to);

/// Converts a metric name to a tracker's name as the Trainer's callbacks do: eval_loss ->
/// eval/loss, loss -> train/loss.
std::string tracker_name(std::string_view name);
/// Visits the non-object values of a JSON object by dotted key.
void visit_leaves(
    const nlohmann::json& object,
    const std::function<void(const std::string& name, const nlohmann::json& leaf)>& visit);
/// Returns the string at a key, or an empty one if there is none.
std::string text_at(const nlohmann::json& object, const char* key);
/// Returns the name of this machine.
std::string host_name();
/// Formats local time with strftime.
std::string format_time(const char* format, double wall_time);

}  // namespace lockstep::monitor
