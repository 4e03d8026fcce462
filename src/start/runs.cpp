// `lockstep runs`, `compare` and `sync`.
#include "start/runs.h"

#include <ctime>
#include <filesystem>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "monitor/trackers.h"
#include "start/parse.h"
#include "watch/record/compare.h"
#include "watch/record/run.h"

namespace lockstep::start {
namespace {

/// Returns the run's monitor.otlp.
std::string recorded_otlp(const std::string& folder) {
  const auto configuration = watch::configuration_of(folder);
  const auto found = configuration.find("monitor.otlp");
  std::string otlp = found == configuration.end() ? "" : found->second;
  std::erase(otlp, '\'');  // the value may be quoted as in YAML
  if (mentions(otlp, "***")) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{}: monitor.otlp is recorded without its credentials", folder),
        "add --otlp ADDRESS, with the credentials");
  }
  return otlp;
}

}  // namespace

int run_runs(std::vector<std::string> arguments) {
  std::string folder = ".";
  bool json = false;
  CLI::App app(
      "List the runs in and below a folder: what they train, their progress, how they ended.",
      "lockstep runs");
  app.add_option("folder", folder, "Folder to search. path")->capture_default_str();
  app.add_flag("--json", json, "Print one JSON object per line");
  if (parse(app, std::move(arguments)) == Parsed::kHelpShown) {
    return 0;
  }
  const auto now = static_cast<double>(std::time(nullptr));
  std::vector<watch::RunSummary> runs;
  for (const std::filesystem::path& each : watch::find_runs(folder)) {
    try {
      runs.push_back(watch::summarize(each, now));
    } catch (const Error& error) {
      runs.push_back(watch::unreadable(each, error));
    }
  }
  if (json) {
    for (const watch::RunSummary& run : runs) {
      fmt::print("{}\n", watch::to_json(run).dump());
    }
  } else if (runs.empty()) {
    fmt::print("no runs in {}\n", folder);
  } else {
    fmt::print("{}", watch::runs_table(runs, folder));
  }
  return 0;
}

int run_compare(std::vector<std::string> arguments) {
  std::string first, second;
  bool json = false;
  CLI::App app("Compare two runs: configuration, data, version and curves.", "lockstep compare");
  app.add_option("first", first, "The folder of a run")->required();
  app.add_option("second", second, "The folder of another run")->required();
  app.add_flag("--json", json, "Print one JSON object");
  if (parse(app, std::move(arguments)) == Parsed::kHelpShown) {
    return 0;
  }
  const watch::Comparison found =
      watch::compare_runs(first, second, static_cast<double>(std::time(nullptr)));
  fmt::print("{}", json ? watch::to_json(found).dump() + "\n" : watch::comparison_text(found));
  return 0;
}

int run_sync(std::vector<std::string> arguments) {
  std::string folder, otlp;
  CLI::App app(
      "Upload the records of a run that the servers of MLflow (MLFLOW_TRACKING_URI) and "
      "OpenTelemetry (monitor.otlp) have not received.",
      "lockstep sync");
  app.add_option("run", folder, "The folder of a run")->required();
  app.add_option(
      "--otlp",
      otlp,
      "Address of the OpenTelemetry server; required if it contains credentials, which a run does "
      "not record. string; default: monitor.otlp of the run");
  if (parse(app, std::move(arguments)) == Parsed::kHelpShown) {
    return 0;
  }
  const watch::RunSummary run = watch::summarize(folder, static_cast<double>(std::time(nullptr)));
  if (run.end == watch::End::kRunning) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} is still training and uploads its records itself", folder),
        "wait until it has ended");
  }
  if (otlp.empty()) {
    otlp = recorded_otlp(folder);
  }
  if (!monitor::send_what_is_kept(folder, otlp)) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("some records of {} could not be uploaded", folder),
        "try again when the server is available");
  }
  fmt::print("all records are uploaded\n");
  return 0;
}

}  // namespace lockstep::start
