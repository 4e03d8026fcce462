// Creates the trackers of training.report_to and sends stored data.
#include "monitor/trackers.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/nearest.h"
#include "monitor/mlflow.h"
#include "monitor/mlflow_folder.h"
#include "monitor/monitor.h"
#include "monitor/spans.h"
#include "monitor/tensorboard.h"
#include "monitor/train_job_status.h"
#include "monitor/wandb.h"

namespace lockstep::monitor {
namespace {

const std::vector<std::string>& tracker_names() {
  static const std::vector<std::string> names{"tensorboard", "wandb", "mlflow"};
  return names;
}

bool wants(const std::vector<std::string>& report_to, const std::string& name) {
  return std::any_of(report_to.begin(), report_to.end(), [&](const std::string& each) {
    return each == name || each == "all";
  });
}

std::map<std::string, std::string> environment_of(
    const MonitorOptions& options, const std::vector<const char*>& names) {
  std::map<std::string, std::string> found;
  for (const char* const name : names) {
    const char* const value = options.environment ? options.environment(name) : std::getenv(name);
    if (value != nullptr && *value != '\0') {
      found[name] = value;
    }
  }
  return found;
}

const std::vector<const char*>& wandb_variables() {
  static const std::vector<const char*> names{
      "WANDB_MODE",
      "WANDB_DISABLED",
      "WANDB_PROJECT",
      "WANDB_ENTITY",
      "WANDB_RUN_ID",
      "WANDB_NAME",
      "WANDB_RUN_GROUP",
      "WANDB_JOB_TYPE",
      "WANDB_NOTES",
      "WANDB_TAGS",
      "WANDB_RESUME",
      "WANDB_LOG_MODEL",
      "WANDB_DIR"};
  return names;
}

std::string project_of(const MonitorOptions& options) {
  return options.project.empty() ? "lockstep" : options.project;
}

void visit_leaves_below(
    const std::string& prefix,
    const nlohmann::json& object,
    const std::function<void(const std::string& name, const nlohmann::json& leaf)>& visit) {
  for (const auto& [key, leaf] : object.items()) {
    const std::string name = prefix.empty() ? key : fmt::format("{}.{}", prefix, key);
    if (leaf.is_object()) {
      visit_leaves_below(name, leaf, visit);
    } else {
      visit(name, leaf);
    }
  }
}

/// Sends the content of an outbox, if it exists.
template <class MakeSender>
bool send_kept(const std::filesystem::path& path, const char* name, const MakeSender& make) {
  std::error_code none;
  if (const auto bytes = std::filesystem::file_size(path, none); none || bytes == 0) {
    return true;
  }
  auto sender = make();
  Outbox outbox(
      path,
      name,
      /*goes_on=*/true,
      [&](const std::vector<std::string>& lines) { sender.send(lines); },
      [&] { sender.cancel(); });
  return outbox.finish(std::numeric_limits<int>::max());
}

}  // namespace

std::vector<std::string> problems_of_report_to(const std::vector<std::string>& report_to) {
  std::vector<std::string> problems;
  for (const std::string& name : report_to) {
    const auto& names = tracker_names();
    if (name != "none" && name != "all" &&
        std::find(names.begin(), names.end(), name) == names.end()) {
      problems.push_back(fmt::format(
          "training.report_to contains '{}', which is not one of {}, all, none.{}",
          name,
          fmt::join(names, ", "),
          did_you_mean(name, names)));
    }
  }
  return problems;
}

std::vector<std::unique_ptr<MetricsSink>> make_trackers(
    const MonitorOptions& options, double wall_time, bool resumed) {
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
         .run_folder = options.output_dir,
         .project = project_of(options),
         .name = options.run_name,
         .configuration_json = options.configuration_json,
         .start_time = wall_time,
         .resumed = resumed,
         .of_ranks = options.wandb_ranks},
        environment_of(options, wandb_variables()));
    if (wandb) {
      auto run = std::make_unique<WandbRun>(*wandb);
      log_info(
          "wandb: {}; upload it with: wandb sync {}{}",
          run->goes_on() ? "continuing an offline run with the same id" : "created an offline run",
          run->goes_on() ? "--append " : "",
          run->folder().string());
      sinks.push_back(std::move(run));
    }
  }
  const auto environment = environment_of(options, mlflow_variables());
  const bool is_named = std::ranges::find(options.report_to, "mlflow") != options.report_to.end();
  if (is_named ||
      (wants(options.report_to, "mlflow") && environment.contains("MLFLOW_TRACKING_URI"))) {
    const MlflowOptions mlflow = mlflow_options_from_environment(
        {.folder = options.output_dir,
         .experiment = project_of(options),
         .name = options.run_name,
         .configuration_json = options.configuration_json,
         .start_time = wall_time},
        environment);
    if (mlflow.store.empty()) {
      sinks.push_back(std::make_unique<MlflowRun>(mlflow, resumed));
    } else {
      sinks.push_back(std::make_unique<MlflowFolder>(mlflow, resumed));
    }
  }
  if (auto status =
          TrainJobStatus::of_environment(environment_of(options, train_job_variables()))) {
    sinks.push_back(std::move(status));
  }
  return sinks;
}

bool send_what_is_kept(const std::filesystem::path& folder, const std::string& otlp) {
  const bool mlflow = send_kept(mlflow_outbox(folder), "MLflow", [&] {
    const MlflowOptions mlflow =
        mlflow_options_from_environment({.folder = folder}, environment_of({}, mlflow_variables()));
    if (!mlflow.store.empty()) {
      throw Error(
          ErrorKind::kConfig,
          "the stored data is for a tracking server, but MLFLOW_TRACKING_URI names a folder",
          "set MLFLOW_TRACKING_URI=http://HOST:5000");
    }
    return MlflowSender(mlflow);
  });
  const bool spans = otlp.empty() || send_kept(spans_outbox(folder), "OpenTelemetry", [&] {
                       return SpanSender(otlp, folder.lexically_normal().string());
                     });
  return mlflow && spans;
}

void visit_leaves(
    const nlohmann::json& object,
    const std::function<void(const std::string& name, const nlohmann::json& leaf)>& visit) {
  visit_leaves_below("", object, visit);
}

std::string text_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
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
