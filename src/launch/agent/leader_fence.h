// Fencing after a failover: makes former coordinators step down.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "launch/agent/replicated_state.h"
#include "launch/plan/launch_plan.h"

namespace lockstep::launch {

/// Returns a hash of the workers' command. It distinguishes a restart of the same job from another
/// job at the same endpoint.
std::string command_of(const LaunchPlan& plan);

/// Polls every former endpoint of the job once a second, on its own thread. Sends each coordinator
/// that answers there and authenticates itself the address of its successor. That coordinator then
/// redirects its agents.
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
