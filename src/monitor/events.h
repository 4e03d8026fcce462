// events.jsonl: log of a run's events, such as checkpoints and warnings. Each line is a JSON
// object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/file.h"

namespace lockstep::monitor {

/// Name of the file in a run's folder.
inline constexpr std::string_view kEventsName = "events.jsonl";

/// Event log in a run's folder. Each attempt of a run appends these events:
/// - "began": step, task, host, configuration and data
/// - "saved" and "best": checkpoints
/// - "act": command of a user
/// - "spike": gradient norm far above previous ones
/// - "samples": text that the model generated
/// - "forecast" and "memory": breakdown for the rank that uses most memory
/// - "slow rank": current straggler; null when there is none any more
/// - "overflow": a float16 step was skipped
/// - "compared replicas"
/// - "time": breakdown of the run time
/// - "finished", "stopped" or "failed" at the end
/// If an attempt has none of the last three events, it was killed.
class EventFile {
 public:
  /// Opens `folder`/events.jsonl for appending. Ends an incomplete last line. Throws Error
  /// (checkpoint) if the file is not writable.
  explicit EventFile(const std::filesystem::path& folder);

  /// Appends {"time": .., "step": .., "event": name, fields in order} with one write. `wall_time`
  /// is in seconds since 1970, and `step` is the number of completed optimizer steps. Throws Error
  /// (checkpoint).
  void log(
      double wall_time, int64_t step, std::string_view name, const nlohmann::ordered_json& fields);

 private:
  File file_;
  uint64_t end_;
};

/// Returns the identity of the running program: {"version": .., "build": a hash of its file}. It
/// distinguishes runs of different builds.
nlohmann::ordered_json program_identity();

}  // namespace lockstep::monitor
