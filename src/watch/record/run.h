// Reads the state of a run from its folder. The run may be active or have ended, also on another
// machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lockstep::watch {

/// Line of events.jsonl (see monitor/events.h for the events).
struct Event {
  double time = 0;  // seconds since 1970
  int64_t step = 0;
  std::string name;
  nlohmann::json fields;  // the whole line
};

/// Returns the events of the current run; events of an earlier run in the same folder are skipped,
/// as are an incomplete last line and invalid lines. `names`: the events to return; empty: all.
/// With names, the memory does not depend on the length of the file.
std::vector<Event> read_events(
    const std::filesystem::path& folder, std::initializer_list<std::string_view> names = {});

/// State of a run.
enum class End {
  kRunning,
  kFinished,
  kStopped,  // saved a checkpoint and stopped on request
  kFailed,
  kKilled,      // recorded no end, and no process has locked its folder
  kUnreadable,  // the record cannot be read
};

/// Summary of a run. It can be read without reading all metrics.
struct RunSummary {
  std::filesystem::path folder;
  std::string model = "?", plan = "?";  // "?": not recorded
  int64_t ranks = 0, step = 0, total_steps = 0;
  End end = End::kKilled;
  std::string reason;  // for kFailed, kStopped and kUnreadable
  std::optional<double> loss, learning_rate, tokens_per_s, step_s;  // last logged values
  std::optional<std::pair<std::string, double>> best;               // name and value of the metric
  std::optional<double> began;                                      // seconds since 1970
  /// Goodput: share of the time from the first start to the last sign of activity that was spent in
  /// steps that were not lost. Saving, startup, waiting between attempts, and steps that were
  /// repeated later do not count.
  std::optional<double> goodput;
  std::optional<double> seconds_left;  // for an active run, at the speed of the last logged steps
};

/// Returns the state as text, such as "running", "finished" or "failed: reason".
std::string end_text(const RunSummary& run);

/// Returns true if a folder is the output_dir of a run, which contains metrics or events.
bool is_run(const std::filesystem::path& folder);

/// Returns a summary of a run. `now` is in seconds since 1970. Throws Error (config) if the folder
/// does not contain a run.
RunSummary summarize(const std::filesystem::path& folder, double now);
/// Returns the summary of a run that summarize() failed to read, for lists of runs: one unreadable
/// record does not hide the others.
RunSummary unreadable(const std::filesystem::path& folder, const Error& error);

/// Returns the runs in a folder and its subfolders, sorted by name. Does not follow links or search
/// checkpoints. Throws Error (config) if the folder does not exist.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& folder);

/// Returns the configuration of a run as text. Keys are joined by dots. The values are those of
/// `folder`/config.yaml, if it exists, and later changes by the user: "0.001, 0.01 after step 57".
std::map<std::string, std::string> configuration_of(const std::filesystem::path& folder);

}  // namespace lockstep::watch
