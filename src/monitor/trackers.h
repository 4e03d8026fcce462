// The trackers of training.report_to.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/record.h"

namespace lockstep::monitor {

struct MonitorOptions;

/// A sink for each name of options.report_to: "tensorboard", "wandb"; "all" is both, "none" and
/// nothing are none. Throws Error(kConfig) that lists the unknown ones.
std::vector<std::unique_ptr<MetricsSink>> make_trackers(
    const MonitorOptions& options, double wall_time);
/// The problems of such a list, one each; nothing where it is right. For checking a configuration
/// before it runs.
std::vector<std::string> problems_of_report_to(const std::vector<std::string>& report_to);

/// The name of a value in a tracker, as the Trainer's callbacks have it: eval_loss -> eval/loss,
/// loss -> train/loss.
std::string tracker_name(std::string_view name);
/// The name of this machine.
std::string host_name();
/// Local time in strftime's format.
std::string format_time(const char* format, double wall_time);

}  // namespace lockstep::monitor
