// Looks after ranks that do not get on: names them, with their stacks and with who waits for whom.
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

/// The agent's eye on the workers of one machine. It reads what they tell of themselves
/// (base/rank_status.h) once a second, and asks nothing of them. Workers that tell nothing (Python
/// scripts) are left alone.
class HangWatch {
 public:
  /// How long the stacks of a process may take.
  static constexpr std::chrono::seconds kMostForStacks{15};

  explicit HangWatch(const WorkerGroup& group) : group_(group) {}
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

  /// Whether some worker has a pulse, and look() is to be called.
  bool looks() const;
  /// Names a rank that hangs, once, on stderr; its stacks are taken by another process, so that
  /// this never waits. Returns a worker that is to be ended for it, if any (training.hang_timeout).
  const Worker* look();

  /// After workers gave up on others (a timeout): the worker that does not get on, if any; it waits
  /// for its stacks, `pump` being called meanwhile. `known`: its rank, where they say it.
  const Worker* find_after_timeout(
      std::optional<int> known, const std::function<void(std::chrono::milliseconds)>& pump);
  /// What was found of a rank: state, graph, the stack of its first thread. Empty: nothing.
  std::string found(int rank) const;

 private:
  std::vector<RankView> views(bool living) const;
  const Worker* worker_of(int rank) const;
  void begin_report(const Hang& hang, const std::vector<RankView>& ranks, double now);
  /// Reads what there is of the stacks; tells the report once they are whole, or their time is up.
  void go_on_with_report();

  const WorkerGroup& group_;
  std::chrono::steady_clock::time_point looked_{};
  std::optional<Hang> told_;                    // that is told, or about to be
  std::string report_;                          // of it, without stacks
  std::vector<std::pair<int, pid_t>> to_walk_;  // ranks whose stacks are still to be taken
  std::optional<Process> walker_;
  int walked_rank_ = 0;
  std::chrono::steady_clock::time_point walk_began_;
  std::string stacks_;  // of walked_rank_, as far as they were read
  std::string all_stacks_;
  std::map<int, std::string> found_;
};

}  // namespace lockstep::launch
