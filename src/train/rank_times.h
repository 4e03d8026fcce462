// What each rank's steps went into, told with what the ranks tell each other anyway.
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

/// Of a rank: what the next step's agreement sends of the step before. Rank 0 keeps the sums of all
/// between two logged steps.
class RankTimes {
 public:
  /// The seconds of monitor::kRankMeans, in their order; then the memory by kind.
  static constexpr int64_t kTimes = std::ssize(monitor::kRankMeans);
  static constexpr int64_t kNumbers = kTimes + static_cast<int64_t>(parallel::kMemoryKinds);

  /// `axes`: of the run, whose ranks of one stage are compared with each other.
  explicit RankTimes(const parallel::ParallelGroups& axes);

  /// This rank has ended a step, whose times these are; `moving`: of its own part of communication.
  void end_step(
      double seconds,
      double for_data,
      double for_ranks,
      double moving,
      const parallel::MemoryByKind& fullest);
  /// It has saved after this step, and was at that so long itself.
  void end_save(double seconds);
  /// Of the step that ended last; zeros before the first.
  const std::array<double, kNumbers>& numbers() const { return last_; }

  /// What `rank` of `ranks` sent, at the agreement after `step` steps.
  void take(int rank, int ranks, int64_t step, std::span<const double, kNumbers> numbers);
  /// At a logged step: tells the means since it last did, and the memory of the fullest rank by
  /// kind where it grew. Of many ranks some steps at least are told in one line.
  void tell(monitor::Monitor& monitor);
  /// After the last of `step` steps: gathers what no further step sends, and tells all that is
  /// left. `monitor`: rank 0's, null on the others. Every rank must call.
  void end_run(comm::Communicator& communicator, int64_t step, monitor::Monitor* monitor);

 private:
  void tell_sums(monitor::Monitor& monitor);
  /// An event where another rank is the slow one than before, or none is any more.
  void judge(monitor::Monitor& monitor);

  std::array<double, kNumbers> last_{};
  std::vector<int> stages_;  // of each rank; empty: there is one
  monitor::RankShares sums_;
  monitor::RankShares judged_;               // of the lines since it was last judged who is slow
  std::vector<std::vector<double>> before_;  // compute of each rank at the judgements so far
  std::optional<size_t> slow_;               // the rank that was told of
  std::vector<std::array<double, parallel::kMemoryKinds>> memory_;  // the fullest of each rank
  double told_bytes_ = 0;
};

}  // namespace lockstep::train
