// The trackers of training.report_to.
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

/// A sink for each name of options.report_to: "tensorboard", "wandb", "mlflow"; "all" is all of
/// them (MLflow where the environment names a server), "none" and nothing are none; and one for the
/// TrainJob that the environment names. `resumed`: the run goes on from a checkpoint. Throws
/// Error(kConfig) that lists the unknown ones.
std::vector<std::unique_ptr<MetricsSink>> make_trackers(
    const MonitorOptions& options, double wall_time, bool resumed);
/// Sends what MLflow's server and OpenTelemetry's collector (`otlp`, an address) did not get of the
/// run in `folder` while it trained; empty texts are for nobody. Returns whether nothing is left.
/// Throws Error(kConfig) where the environment names no MLflow server and there is something for
/// one.
bool send_what_is_kept(const std::filesystem::path& folder, const std::string& otlp);
/// The problems of such a list, one each; nothing where it is right. For checking a configuration
/// before it runs.
std::vector<std::string> problems_of_report_to(const std::vector<std::string>& report_to);

/// The name of a value in a tracker, as the Trainer's callbacks have it: eval_loss -> eval/loss,
/// loss -> train/loss.
std::string tracker_name(std::string_view name);
/// The values of a JSON object that are no objects, by their dotted keys.
void visit_leaves(
    const nlohmann::json& object,
    const std::function<void(const std::string& name, const nlohmann::json& leaf)>& visit);
/// The name of this machine.
std::string host_name();
/// Local time in strftime's format.
std::string format_time(const char* format, double wall_time);

}  // namespace lockstep::monitor
