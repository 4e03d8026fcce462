// ranks.jsonl: what each rank's steps went into, one JSON object a line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
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

/// A rank that the others wait for.
struct SlowRank {
  size_t rank = 0;
  double factor = 1;     // of the median: what a step takes without waiting for other ranks
  bool by_data = false;  // most of what it takes longer is waiting for data, else its own work
};
/// Nothing where no rank takes 1.2 times the median, or there is one rank.
std::optional<SlowRank> slow_rank(const RankShares& shares);
/// "rank 3 is slow: without waiting for others a step takes 1.92 times the median there, by its
/// data"; or that none is. Empty for one rank.
std::string slow_text(const RankShares& shares);
/// Adds the second to the first, as means over the steps of both.
void merge_shares(RankShares& first, const RankShares& second);

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
