// Hang detection: names ranks without progress, with their stacks and the graph of waits.
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

/// Watches one machine's workers. Reads their rank status (base/rank_status.h) once a second
/// without their cooperation. Workers without a status (Python scripts) are ignored.
class HangWatch {
 public:
  /// Time limit for reading a process's stacks.
  static constexpr std::chrono::seconds kMostForStacks{15};

  explicit HangWatch(const WorkerGroup& group) : group_(group) {}
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

  /// True if a worker has a rank status, so that look() must be called.
  bool looks() const;
  /// Reports a hanging rank once on stderr; a separate process takes its stacks, so this never
  /// blocks. Returns a worker to kill for it, if any (training.hang_timeout).
  const Worker* look();

  /// After workers timed out: returns the worker without progress, if any. Waits for its stacks and
  /// calls `pump` meanwhile. `known`: its rank, if the workers name it.
  const Worker* find_after_timeout(
      std::optional<int> known, const std::function<void(std::chrono::milliseconds)>& pump);
  /// Returns the findings about a rank: state, graph of waits, stack of the first thread. Empty:
  /// none.
  std::string found(int rank) const;

 private:
  std::vector<RankView> views(bool living) const;
  const Worker* worker_of(int rank) const;
  void begin_report(const Hang& hang, const std::vector<RankView>& ranks, double now);
  /// Reads available stack output; prints the report when it is complete or its time limit is
  /// reached.
  void go_on_with_report();

  const WorkerGroup& group_;
  std::chrono::steady_clock::time_point looked_{};
  std::optional<Hang> told_;                    // reported, or about to be
  std::string report_;                          // the report, without stacks
  std::vector<std::pair<int, pid_t>> to_walk_;  // ranks whose stacks have not been taken yet
  std::optional<Process> walker_;
  int walked_rank_ = 0;
  std::chrono::steady_clock::time_point walk_began_;
  std::string stacks_;  // of walked_rank_, as read so far
  std::string all_stacks_;
  std::map<int, std::string> found_;
};

}  // namespace lockstep::launch
