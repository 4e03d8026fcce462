// Step times of each rank. They are exchanged with the counts that ranks exchange in every step.
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

/// Times of a rank's previous step, which it sends with the next step's counts. Rank 0 sums the
/// times of all ranks between two logged steps.
class RankTimes {
 public:
  /// The times of monitor::kRankMeans, in order, followed by memory by kind.
  static constexpr int64_t kTimes = std::ssize(monitor::kRankMeans);
  static constexpr int64_t kNumbers = kTimes + static_cast<int64_t>(parallel::kMemoryKinds);

  /// `axes` are the groups of the run; ranks of the same stage are compared with each other.
  explicit RankTimes(const parallel::ParallelGroups& axes);

  /// Records the times of a step that this rank completed. `moving` is the rank's own part of the
  /// communication time.
  void end_step(
      double seconds,
      double for_data,
      double for_ranks,
      double moving,
      const parallel::MemoryByKind& fullest);
  /// Adds the time that this rank spent on a save after the step.
  void end_save(double seconds);
  /// Numbers of the last step; zeros before the first.
  const std::array<double, kNumbers>& numbers() const { return last_; }

  /// Adds the numbers that `rank` of `ranks` sent after `step` steps.
  void take(int rank, int ranks, int64_t step, std::span<const double, kNumbers> numbers);
  /// At a logged step: reports the means since the last report and, if it grew, the fullest rank's
  /// memory by kind. With many ranks, a report covers several steps to limit its size.
  void tell(monitor::Monitor& monitor);
  /// After the last of `step` steps: gathers the numbers of the last step and reports the rest.
  /// `monitor` is null except on rank 0. Every rank must call.
  void end_run(comm::Communicator& communicator, int64_t step, monitor::Monitor* monitor);

 private:
  void tell_sums(monitor::Monitor& monitor);
  /// Records an event if the slow rank changes or there is none any more.
  void judge(monitor::Monitor& monitor);

  std::array<double, kNumbers> last_{};
  std::vector<int> stages_;  // pipeline stage of each rank; empty: no pipeline
  monitor::RankShares sums_;
  monitor::RankShares judged_;               // sums since the last check for a slow rank
  std::vector<std::vector<double>> before_;  // compute time of each rank at previous checks
  std::optional<size_t> slow_;               // last rank reported as slow
  std::vector<std::array<double, parallel::kMemoryKinds>> memory_;  // largest memory of each rank
  double told_bytes_ = 0;
};

}  // namespace lockstep::train
