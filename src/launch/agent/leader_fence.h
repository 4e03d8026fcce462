// What an heir who hosts a job owes the others: whoever hosted it before, and comes back, must not
// go on beside it.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "launch/agent/replicated_state.h"
#include "launch/plan/launch_plan.h"

namespace lockstep::launch {

/// What tells a job started anew from another one at the same place: the hash of what its workers
/// run.
std::string command_of(const LaunchPlan& plan);

/// Asks at every place from where the job was hosted, once a second, on a thread of its own: a host
/// that answers there, having proved the secret, is told who hosts the job now, and sends all who
/// are with it there.
class LeaderFence {
 public:
  LeaderFence(
      const LaunchPlan& plan,
      HostPlace now,
      std::string job,
      int term,
      std::vector<HostPlace> former);
  ~LeaderFence();
  LeaderFence(const LeaderFence&) = delete;
  LeaderFence& operator=(const LeaderFence&) = delete;

 private:
  void run();
  void tell(const HostPlace& former);

  const LaunchPlan plan_;
  const HostPlace now_;
  const std::string job_;
  const int term_;
  const std::vector<HostPlace> former_;
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

}  // namespace lockstep::launch
