// ranks.jsonl: breakdown of each rank's step time. Each line is a JSON object.
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

/// Name of the file in a run's folder.
inline constexpr std::string_view kRanksName = "ranks.jsonl";

/// Means over several steps. Each list has one value per rank.
struct RankShares {
  int64_t step = 0;   // last step
  int64_t steps = 0;  // number of steps
  std::vector<double> step_s, data_wait_s, communication_wait_s;
  std::vector<double> checkpoint_s;  // for saving outside of steps, without waiting for others
  std::vector<double>
      moving_s;  // communication time that is not spent waiting for peers: comm/moving.h
  std::vector<double> memory_bytes{};  // peak over these steps
  std::vector<int> stages{};  // pipeline stage of each rank; empty: all ranks have the same work
};

/// Straggler: rank that the other ranks wait for.
struct SlowRank {
  enum class By { kCompute, kData, kCheckpoint, kCommunication };
  size_t rank = 0;
  double factor = 1;
  By by = By::kCompute;  // largest contribution to the delay
};
/// Returns the slowest rank. This is the rank whose time for steps and saves, without waiting for
/// other ranks, is the largest multiple of the usual time. Returns nullopt if this multiple is
/// below 1.2 or there is only one rank.
///
/// The usual time is a median. For computation, it is the median over the ranks of the same
/// pipeline stage, because stages may have different work; otherwise the median over all ranks. A
/// rank that is the only one of its stage is compared with its own usual time, `own` (the result of
/// usual_compute()), corrected for a slowdown that all ranks have in common. If `own` is empty, the
/// computation time of such ranks is ignored.
std::optional<SlowRank> slow_rank(const RankShares& shares, const std::vector<double>& own = {});
/// Returns the computation time of each rank in seconds per step.
std::vector<double> compute_of(const RankShares& shares);
/// Returns each rank's median computation time over the run so far. `before` contains the results
/// of compute_of() for intervals of equal length. Returns an empty list if there are fewer than
/// kUsualParts.
inline constexpr size_t kUsualParts = 4;
std::vector<double> usual_compute(const std::vector<std::vector<double>>& before);
/// Returns "data", "checkpoint", "communication" or "compute".
std::string_view name_of(SlowRank::By by);
/// Describes the slowest rank, or states that there is none. Empty if there is only one rank.
std::string slow_text(const RankShares& shares, const std::vector<double>& own = {});
/// Merges `second` into `first`. The result is the mean over the steps of both.
void merge_shares(RankShares& first, const RankShares& second);

/// Lists of RankShares that contain means, with their names in the file. Ranks send their values in
/// this order, too.
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
  /// [..], "checkpoint_s": [..], "moving_s": [..], "memory_bytes": [..]} with one write. With a
  /// pipeline, the line also has "stages": [..]. Throws Error (checkpoint).
  void log(const RankShares& shares);

 private:
  LineFile file_;
};

}  // namespace lockstep::monitor
