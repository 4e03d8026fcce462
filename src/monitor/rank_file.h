// ranks.jsonl: what each rank's steps went into, one JSON object a line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace lockstep::monitor {

/// The file's name in a run's folder.
inline constexpr std::string_view kRanksName = "ranks.jsonl";

/// Means over some steps, of each rank: [ranks] each.
struct RankShares {
  int64_t step = 0;   // the last of them
  int64_t steps = 0;  // how many
  std::vector<double> step_s, data_wait_s, communication_wait_s;
  std::vector<double> memory_bytes;  // the most at any moment of these
};

class RankFile {
 public:
  /// Of `folder`; what lies there after step `after` is cut. Throws as open_lines_after().
  RankFile(const std::filesystem::path& folder, int64_t after);
  /// {"step": .., "steps": .., "step_s": [..], "data_wait_s": [..], "communication_wait_s": [..],
  /// "memory_bytes": [..]}, with one write. Throws Error(kCheckpoint).
  void log(const RankShares& shares);

 private:
  File file_;
  uint64_t end_;
};

}  // namespace lockstep::monitor
