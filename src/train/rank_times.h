// Step times of each rank. They are sent with the counts that ranks exchange in every step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "monitor/monitor.h"
#include "parallel/memory_account.h"
#include "parallel/ranks/parallel_groups.h"

namespace lockstep::train {

/// Times of each rank. A rank sends the times of its previous step with the counts of the next
/// step. Rank 0 sums the times of all ranks between two logged steps.
class RankTimes {
 public:
  /// Number of values: the times of monitor::kRankMeans, in order, followed by memory by kind.
  static constexpr int64_t kTimes = std::ssize(monitor::kRankMeans);
  static constexpr int64_t kNumbers = kTimes + static_cast<int64_t>(parallel::kMemoryKinds);

  /// `axes` are the process groups of the run. Ranks of the same stage are compared with each
  /// other.
  explicit RankTimes(const parallel::ParallelGroups& axes);

  /// Records the times of a step that this rank completed. `moving` is the communication time
  /// without waiting for other ranks.
  void end_step(
      double seconds,
      double for_data,
      double for_ranks,
      double moving,
      const parallel::MemoryByKind& fullest);
  /// Adds the time that this rank spent on a save after the step.
  void end_save(double seconds);
  /// Returns the values of the last step; zeros before the first one.
  const std::array<double, kNumbers>& numbers() const { return last_; }

  /// Adds the values that `rank`, of `ranks` ranks, sent after `step` steps.
  void take(int rank, int ranks, int64_t step, std::span<const double, kNumbers> numbers);
  /// Must be called at logged steps. Reports the means since the last report. Also reports memory
  /// by kind of the rank that uses most, if it has grown. With many ranks, one report covers
  /// several logged steps, to limit the size of the run's record.
  void tell(monitor::Monitor& monitor);
  /// Must be called after the last of `step` steps, on every rank. Gathers the values of the last
  /// step and reports the rest. `monitor` is null except on rank 0.
  void end_run(comm::Communicator& communicator, int64_t step, monitor::Monitor* monitor);

 private:
  void tell_sums(monitor::Monitor& monitor);
  /// Records an event if another rank is slow than before, or if no rank is slow any more.
  void judge(monitor::Monitor& monitor);

  std::array<double, kNumbers> last_{};
  std::vector<int> stages_;  // pipeline stage of each rank; empty: no pipeline
  monitor::RankShares sums_;
  monitor::RankShares judged_;               // sums since the last check for slow ranks
  std::vector<std::vector<double>> before_;  // compute times per rank at previous checks
  std::optional<size_t> slow_;               // last rank reported as slow
  std::vector<std::array<double, parallel::kMemoryKinds>> memory_;  // largest memory of each rank
  double told_bytes_ = 0;
};

}  // namespace lockstep::train
