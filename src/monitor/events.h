// events.jsonl: log of a run's events, such as checkpoints and warnings, with one JSON object per
// line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/file.h"

namespace lockstep::monitor {

/// File name in a run's folder.
inline constexpr std::string_view kEventsName = "events.jsonl";

/// Event log in a run's folder. Each attempt of a run appends its events: "began" (step, task,
/// host, configuration, data), "saved", "best", "act" (a user command), "spike" (a gradient norm
/// far above previous ones), "samples" (text that the model generated), "forecast" and "memory"
/// (breakdown of the fullest rank), "slow rank" (the current straggler; null once there is none),
/// "overflow" (float16: the step was skipped), "compared replicas", "time" (breakdown of the run
/// time), "measured" (step time and peak memory, with their predictions) and finally "finished",
/// "stopped" or "failed". An attempt without such a final event was killed.
class EventFile {
 public:
  /// Opens `folder`/events.jsonl for appending and terminates an incomplete last line. Throws Error
  /// (checkpoint) if the file is not writable.
  explicit EventFile(const std::filesystem::path& folder);

  /// Appends {"time": .., "step": .., "event": name, fields in order} with one write. `wall_time`:
  /// seconds since 1970; `step`: completed optimizer steps. Throws Error (checkpoint).
  void log(
      double wall_time, int64_t step, std::string_view name, const nlohmann::ordered_json& fields);

 private:
  File file_;
  uint64_t end_;
};

/// Identity of the running program: {"version": .., "build": a hash of its file}. Distinguishes
/// runs of different builds.
nlohmann::ordered_json program_identity();

}  // namespace lockstep::monitor
