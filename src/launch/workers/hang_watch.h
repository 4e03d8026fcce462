// Detects hanging ranks and reports them with their stacks and the graph of waits.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/system/process.h"
#include "launch/workers/waiting.h"
#include "launch/workers/worker_group.h"

namespace lockstep::launch {

/// Watches the workers of one machine. Reads their rank status (base/rank_status.h) once a second,
/// without their cooperation. Workers without rank status (Python scripts) are ignored.
class HangWatch {
 public:
  /// Time limit for reading the stacks of a process.
  static constexpr std::chrono::seconds kMostForStacks{15};

  explicit HangWatch(const WorkerGroup& group) : group_(group) {}
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

  /// Returns true if a worker has a rank status, so that look() must be called.
  bool looks() const;
  /// Reports a hanging rank once on stderr. A separate process reads its stacks, so this function
  /// never blocks. Returns the worker that must be killed because of training.hang_timeout, if any.
  const Worker* look();

  /// Returns the worker without progress, if any. Called after workers timed out. Reads the
  /// worker's stacks, and calls `pump` while waiting for them. `known` is the worker's rank if
  /// other workers named it.
  const Worker* find_after_timeout(
      std::optional<int> known, const std::function<void(std::chrono::milliseconds)>& pump);
  /// Returns the findings about a rank: its state, the graph of waits and the stack of its first
  /// thread. Empty if there are none.
  std::string found(int rank) const;

 private:
  std::vector<RankView> views(bool living) const;
  const Worker* worker_of(int rank) const;
  void begin_report(const Hang& hang, const std::vector<RankView>& ranks, double now);
  /// Reads available stack output. Prints the report when the output is complete or the time limit
  /// is reached.
  void go_on_with_report();

  const WorkerGroup& group_;
  std::chrono::steady_clock::time_point looked_{};
  std::optional<Hang> told_;                    // hang that is reported or about to be
  std::string report_;                          // the report, without stacks
  std::vector<std::pair<int, pid_t>> to_walk_;  // ranks whose stacks have not been read yet
  std::optional<Process> walker_;
  int walked_rank_ = 0;
  std::chrono::steady_clock::time_point walk_began_;
  std::string stacks_;  // stacks of walked_rank_ read so far
  std::string all_stacks_;
  std::map<int, std::string> found_;
};

}  // namespace lockstep::launch
