// ranks.jsonl: what each rank's steps went into, one JSON object a line.
#pragma once

#include <array>
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
  std::vector<double> checkpoint_s;    // beside the step, in saving: its own work, not the others'
  std::vector<double> moving_s;        // what its own part of communication takes: comm/moving.h
  std::vector<double> memory_bytes{};  // the most at any moment of these
  std::vector<int> stages{};           // of a pipeline; empty: all ranks have the same work
};

/// A rank that the others wait for.
struct SlowRank {
  enum class By { kCompute, kData, kCheckpoint, kCommunication };
  size_t rank = 0;
  double factor = 1;
  By by = By::kCompute;  // most of what it takes longer
};
/// The one whose steps and saves, without waiting for other ranks, take the largest multiple of
/// what is usual; nothing where that is less than 1.2, or there is one rank. Usual is the median of
/// each part: of compute that of the ranks of its stage, since stages may have unlike work, of all
/// else that of all ranks. A rank that is a stage of its own has nobody to be compared with but
/// itself: `own` is its usual_compute() [ranks], as far as all ranks have not become slower since;
/// empty: such ranks are not judged by their compute.
std::optional<SlowRank> slow_rank(const RankShares& shares, const std::vector<double>& own = {});
/// Seconds of its own work a step, of each rank.
std::vector<double> compute_of(const RankShares& shares);
/// The median over the run so far, of each rank; `before`: compute_of() its parts, of equal weight.
/// Empty where there are fewer than kUsualParts.
inline constexpr size_t kUsualParts = 4;
std::vector<double> usual_compute(const std::vector<std::vector<double>>& before);
/// "data", "checkpoint", "communication", "compute".
std::string_view name_of(SlowRank::By by);
/// "rank 3 is slow by its data: without waiting for others a step takes 1.92 times what is usual";
/// or that none is. Empty for one rank.
std::string slow_text(const RankShares& shares, const std::vector<double>& own = {});
/// Adds the second to the first, as means over the steps of both.
void merge_shares(RankShares& first, const RankShares& second);

/// The lists of RankShares that are means, by their names in the file: the order of what a rank
/// tells of a step, too.
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
  /// Of `folder`; what lies there after step `after` is cut. Throws as open_lines_after().
  RankFile(const std::filesystem::path& folder, int64_t after);
  /// {"step": .., "steps": .., "step_s": [..], "data_wait_s": [..], "communication_wait_s": [..],
  /// "checkpoint_s": [..], "moving_s": [..], "memory_bytes": [..]}, of a pipeline "stages": [..]
  /// too, with one write. Throws Error(kCheckpoint).
  void log(const RankShares& shares);

 private:
  File file_;
  uint64_t end_;
};

}  // namespace lockstep::monitor
