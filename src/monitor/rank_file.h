// ranks.jsonl: breakdown of each rank's step time, with one JSON object per line.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/line_file.h"

namespace lockstep::monitor {

/// File name in a run's folder.
inline constexpr std::string_view kRanksName = "ranks.jsonl";

/// Means over several steps, one value per rank: [ranks] each.
struct RankShares {
  int64_t step = 0;   // last step
  int64_t steps = 0;  // number of steps
  std::vector<double> step_s, data_wait_s, communication_wait_s;
  std::vector<double> checkpoint_s;  // the rank's own time for saving, outside of steps
  std::vector<double>
      moving_s;  // communication time that is not spent waiting for peers: comm/moving.h
  std::vector<double> memory_bytes{};  // peak over these steps
  std::vector<int> stages{};           // pipeline stages; empty: all ranks have the same work
};

/// Straggler: a rank that the other ranks wait for.
struct SlowRank {
  enum class By { kCompute, kData, kCheckpoint, kCommunication };
  size_t rank = 0;
  double factor = 1;
  By by = By::kCompute;  // the largest contribution to its delay
};
/// Returns the slowest rank: the one whose step and save time, without waiting for other ranks, is
/// the largest multiple of the usual time. Returns nullopt if that factor is below 1.2 or there is
/// only one rank. The usual time is a median: for compute, over the ranks of the same pipeline
/// stage, because stages may have different work; for everything else, over all ranks. A rank that
/// is alone in its stage is compared with itself: `own` is usual_compute() [ranks], corrected for a
/// slowdown shared by all ranks. If `own` is empty, the compute time of such ranks is ignored.
std::optional<SlowRank> slow_rank(const RankShares& shares, const std::vector<double>& own = {});
/// Returns each rank's compute time per step in seconds.
std::vector<double> compute_of(const RankShares& shares);
/// Returns each rank's median compute time over the run so far. `before`: compute_of() of equally
/// long intervals. Empty if there are fewer than kUsualParts.
inline constexpr size_t kUsualParts = 4;
std::vector<double> usual_compute(const std::vector<std::vector<double>>& before);
/// Returns "data", "checkpoint", "communication" or "compute".
std::string_view name_of(SlowRank::By by);
/// Describes the slowest rank, or states that there is none. Empty for a single rank.
std::string slow_text(const RankShares& shares, const std::vector<double>& own = {});
/// Merges `second` into `first`: means over the steps of both.
void merge_shares(RankShares& first, const RankShares& second);

/// Lists of RankShares that are means, by their names in the file. Ranks also send their values in
/// this order.
struct RankMean {
  const char* name;
  std::vector<double> RankShares::* values;
};
inline constexpr std::array<RankMean, 5> kRankMeans = {{
    {"step_s", &RankShares::step_s},
    {"data_wait_s", &RankShares::data_wait_s},
    {"communication_wait_s", &RankShares::communication_wait_s},
    {"checkpoint_s", &RankShares::checkpoint_s},
    {"moving_s", &RankShares::moving_s},
}};

class RankFile {
 public:
  /// Opens the file of `folder` as LineFile::after_step().
  RankFile(const std::filesystem::path& folder, int64_t after);
  /// Appends {"step": .., "steps": .., "step_s": [..], "data_wait_s": [..], "communication_wait_s":
  /// [..], "checkpoint_s": [..], "moving_s": [..], "memory_bytes": [..]} with one write; for a
  /// pipeline also "stages": [..]. Throws Error (checkpoint).
  void log(const RankShares& shares);

 private:
  LineFile file_;
};

}  // namespace lockstep::monitor
