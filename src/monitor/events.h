// events.jsonl: what happened to a run beside its numbers, one JSON object a line, for those who
// watch it or look at it later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/file.h"

namespace lockstep::monitor {

/// The file's name in a run's folder.
inline constexpr std::string_view kEventsName = "events.jsonl";

/// The events of a run's folder. Every attempt at a run adds its own below those before: "began"
/// (at which step, what is trained, where, from which configuration and data), "saved", "best",
/// "act" (somebody steered the run), "spike" (a gradient far larger than those before), "samples"
/// (what the model made of prompts), "forecast" and "memory" (of the fullest rank by kind), "slow
/// rank" (others wait for it; null: for none any more), "overflow" (of float16: the step was left
/// out), "compared replicas", "time" (where it went), and at last one of "finished", "stopped" and
/// "failed". An attempt without such an end was killed.
class EventFile {
 public:
  /// Opens `folder`/events.jsonl at its end; a last line that was torn is ended first. Throws
  /// Error(kCheckpoint) where it cannot be written.
  explicit EventFile(const std::filesystem::path& folder);

  /// {"time": .., "step": .., "event": name, fields in their order}, with one write. `wall_time`:
  /// seconds since 1970; `step`: optimizer steps done. Throws Error(kCheckpoint).
  void log(
      double wall_time, int64_t step, std::string_view name, const nlohmann::ordered_json& fields);

 private:
  File file_;
  uint64_t end_;
};

/// The program that runs: {"version": .., "build": a hash of its file}, so that runs of other code
/// are told apart.
nlohmann::ordered_json program_identity();

}  // namespace lockstep::monitor
