// A run as its folder tells it, whether it goes on, has ended, or was copied from elsewhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep::watch {

/// A line of events.jsonl (monitor/events.h says which there are).
struct Event {
  double time = 0;  // seconds since 1970
  int64_t step = 0;
  std::string name;
  nlohmann::json fields;  // the whole line
};

/// The events of a folder since its run began anew: what an earlier run left in the file is not
/// told. A torn last line and lines that are no events are passed over.
std::vector<Event> read_events(const std::filesystem::path& folder);

/// How a run is.
enum class End {
  kRunning,
  kFinished,
  kStopped,  // it saved and stopped on request
  kFailed,
  kKilled,  // it says nothing of its end, and nobody holds its folder
};

/// What is known of a run without reading all of its metrics.
struct RunSummary {
  std::filesystem::path folder;
  std::string model = "?", plan = "?";  // "?": not recorded
  int64_t ranks = 0, step = 0, total_steps = 0;
  End end = End::kKilled;
  std::string reason;                                               // of kFailed and kStopped
  std::optional<double> loss, learning_rate, tokens_per_s, step_s;  // as last logged
  std::optional<std::pair<std::string, double>> best;               // the metric's name, its value
  std::optional<double> began;                                      // seconds since 1970
  /// The share of the time from the first beginning until the last sign of life that went into
  /// steps that were kept: what was saved, starting, waiting between attempts and steps that were
  /// done again are not of it.
  std::optional<double> goodput;
  std::optional<double>
      seconds_left;  // at the pace of the last logged steps, of a run that goes on
};

/// "running", "finished", "failed: reason".
std::string end_text(const RunSummary& run);

/// Whether a folder is a run's output_dir: it has metrics, or a record of events.
bool is_run(const std::filesystem::path& folder);

/// Throws Error (config) where the folder is no run's. `now`: seconds since 1970.
RunSummary summarize(const std::filesystem::path& folder, double now);

/// The runs at and below a folder, by name. Links are not followed, and checkpoints not searched.
/// Throws Error (config) where there is no such folder.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& folder);

/// A configuration's values by dotted key, as text: those of `folder`/config.yaml, none where it
/// has none, and what a hand on the run made of them: "0.001, 0.01 after step 57".
std::map<std::string, std::string> configuration_of(const std::filesystem::path& folder);

}  // namespace lockstep::watch
