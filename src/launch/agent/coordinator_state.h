// State of the coordinator's thread. Connections are handled in coordinator.cpp, rounds in
// coordinator_rounds.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "launch/agent/agent_connection.h"
#include "launch/agent/coordinator.h"
#include "launch/agent/leader_fence.h"
#include "launch/agent/refusals.h"
#include "launch/agent/replicated_state.h"
#include "launch/system/event_loop.h"
#include "launch/system/job_store.h"
#include "launch/workers/failure_list.h"

namespace lockstep::launch {

class Coordinator::State {
 public:
  State(
      const LaunchPlan& plan,
      Socket listener,
      std::string address,
      ReplicatedJobState before,
      Socket at_endpoint);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kGathering, kChecking, kRunning, kStopping, kOver };

  /// Message and the stages in which an agent may send it.
  struct Rule {
    const char* message;
    void (State::*take)(AgentConnection& agent, const nlohmann::json& message);
    unsigned stages;
  };
  static const Rule kRules[];

  void run();
  void accept(const Socket& listener);
  void make_room_for_a_stranger();
  void hear(AgentConnection& agent, const nlohmann::json& message);
  void greet(AgentConnection& agent, const nlohmann::json& message);
  void take_ready(AgentConnection& agent, const nlohmann::json& message);
  void take_beat(AgentConnection&, const nlohmann::json&) {}
  void take_moved(AgentConnection& agent, const nlohmann::json& message);
  void refuse(AgentConnection& agent, const std::string& why);
  void lose(AgentConnection& agent, const std::string& why);
  void serve_agents();
  void gather();
  GatheringRules rules_of_standbys() const;
  std::string names_of_ready() const;
  void tell_who_waits(const GatheringRules& rules, int count);
  void fence();
  void begin_round();
  std::set<std::string> addresses_of_members() const;
  void checked(AgentConnection& agent, const nlohmann::json& message);
  void take_in_latecomers();
  void ending(AgentConnection& agent, const nlohmann::json& message);
  void ended(AgentConnection& agent, const nlohmann::json& message);
  void stop_round(const std::string& why);
  bool repeats();
  bool is_in_vain();
  void settle();
  void end_job(AttemptEnd end, int code);
  bool everybody(AgentConnection::Stage stage) const;
  /// Returns true if the only reason to end the round is that nodes have joined.
  bool making_room() const { return membership_changed_ && end_ == AttemptEnd::kSucceeded; }
  void tell_round(const nlohmann::json& message);
  int ready() const;

  const LaunchPlan plan_;
  Socket listener_, at_endpoint_;
  const std::string address_;
  GatheringRules rules_;
  EventLoop loop_;
  std::thread thread_;
  std::atomic<bool> leaving_{false};

  std::list<AgentConnection> agents_;
  Refusals refusals_;
  Phase phase_ = Phase::kGathering;
  Clock::time_point gathering_since_ = Clock::now(), enough_since_ = Clock::now(),
                    last_beat_ = Clock::now();
  std::optional<int> told_ready_;  // number of joined nodes in the last log line
  int64_t next_id_ = 1;
  ReplicatedJobState replicated_state_;  // with this coordinator as the last host
  int awaited_standbys_ =
      0;  // standby coordinators of the lost coordinator, until the first round begins
  nlohmann::json membership_;  // members of the round, as a message for agents outside it
  std::optional<LeaderFence> fence_;
  // This process was stopped long enough for the agents to have another coordinator.
  std::optional<Clock::time_point> stood_still_;
  std::vector<int64_t> members_;  // nodes of the round, in rank order
  std::optional<JobStore> store_;
  // Outcome of the round.
  AttemptEnd end_ = AttemptEnd::kSucceeded;
  int exit_code_ = 0, signal_ = 0;
  bool membership_changed_ = false;
  bool gentle_ = false;     // workers are stopped with time to save
  bool made_room_ = false;  // some workers exited to make room for new nodes
  bool stuck_ = false;      // a node has workers that cannot be killed
  std::string reason_;
  FailureList failures_;
  std::optional<int64_t> step_;  // last step that a worker of the round began
  Repetition repetition_;
  std::vector<std::string> problems_;
  nlohmann::json last_word_;  // answer to agents that connect after the end of the job
};

}  // namespace lockstep::launch
