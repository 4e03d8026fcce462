#include "monitor/trackers.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <map>

#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/nearest.h"
#include "monitor/monitor.h"
#include "monitor/tensorboard.h"
#include "monitor/wandb.h"

namespace lockstep::monitor {
namespace {

const std::vector<std::string>& tracker_names() {
  static const std::vector<std::string> names{"tensorboard", "wandb"};
  return names;
}

bool wants(const std::vector<std::string>& report_to, const std::string& name) {
  return std::any_of(report_to.begin(), report_to.end(), [&](const std::string& each) {
    return each == name || each == "all";
  });
}

std::map<std::string, std::string> wandb_environment(const MonitorOptions& options) {
  std::map<std::string, std::string> found;
  for (const char* const name :
       {"WANDB_MODE",
        "WANDB_DISABLED",
        "WANDB_PROJECT",
        "WANDB_ENTITY",
        "WANDB_RUN_ID",
        "WANDB_NAME",
        "WANDB_RUN_GROUP",
        "WANDB_JOB_TYPE",
        "WANDB_NOTES",
        "WANDB_TAGS",
        "WANDB_DIR"}) {
    const char* const value = options.environment ? options.environment(name) : std::getenv(name);
    if (value != nullptr && *value != '\0') {
      found[name] = value;
    }
  }
  return found;
}

}  // namespace

std::vector<std::string> problems_of_report_to(const std::vector<std::string>& report_to) {
  std::vector<std::string> problems;
  for (const std::string& name : report_to) {
    const auto& names = tracker_names();
    if (name != "none" && name != "all" &&
        std::find(names.begin(), names.end(), name) == names.end()) {
      problems.push_back(fmt::format(
          "training.report_to has '{}', which is not one of {}, all, none.{}",
          name,
          fmt::join(names, ", "),
          did_you_mean(name, names)));
    }
  }
  return problems;
}

std::vector<std::unique_ptr<MetricsSink>> make_trackers(
    const MonitorOptions& options, double wall_time) {
  if (const auto problems = problems_of_report_to(options.report_to); !problems.empty()) {
    throw Error(ErrorKind::kConfig, fmt::format("{}", fmt::join(problems, "\n")));
  }
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  if (wants(options.report_to, "tensorboard")) {
    const std::filesystem::path folder =
        !options.logging_dir.empty()
            ? options.logging_dir
            : options.output_dir / "runs" /
                  fmt::format("{}_{}", format_time("%b%d_%H-%M-%S", wall_time), host_name());
    sinks.push_back(
        std::make_unique<TensorboardFile>(folder, wall_time, options.configuration_json));
  }
  if (wants(options.report_to, "wandb")) {
    const auto wandb = wandb_options_from_environment(
        {.folder = options.output_dir,
         .project = options.project.empty() ? "lockstep" : options.project,
         .name = options.run_name,
         .configuration_json = options.configuration_json,
         .start_time = wall_time},
        wandb_environment(options));
    if (wandb) {
      auto run = std::make_unique<WandbRun>(*wandb);
      log_info("wandb: an offline run; upload it with: wandb sync {}", run->folder().string());
      sinks.push_back(std::move(run));
    }
  }
  return sinks;
}

std::string tracker_name(std::string_view name) {
  for (const std::string_view split : {"eval", "test"}) {
    if (name.starts_with(split) && name.substr(split.size()).starts_with('_')) {
      return fmt::format("{}/{}", split, name.substr(split.size() + 1));
    }
  }
  return fmt::format("train/{}", name);
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::string format_time(const char* format, double wall_time) {
  const auto seconds = static_cast<std::time_t>(wall_time);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  std::array<char, 128> text{};
  const size_t length = std::strftime(text.data(), text.size(), format, &local);
  return {text.data(), length};
}

}  // namespace lockstep::monitor
