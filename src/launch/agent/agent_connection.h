// Connection of an agent to the coordinator, and the messages that the agent may send in each
// stage.
#pragma once

#include <chrono>
#include <initializer_list>
#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "launch/agent/channel.h"
#include "launch/agent/membership.h"
#include "launch/workers/attempt.h"

namespace lockstep::launch {

struct AgentConnection {
  enum class Stage {
    kGreeting,
    kRefused,
    kIdle,
    kReady,
    kChecking,
    kRunning,
    kEnded,
    kGone
  } stage = Stage::kGreeting;
  NodeInfo node;
  std::string challenge;
  std::chrono::steady_clock::time_point came = std::chrono::steady_clock::now(), refused;
  std::unique_ptr<Channel> channel;
  bool in_round() const { return stage == Stage::kChecking || stage == Stage::kRunning; }
  bool welcome() const { return node.id != 0 && stage != Stage::kGone; }
  bool stranger() const { return stage == Stage::kGreeting || stage == Stage::kRefused; }
};

/// Set of stages, as bits.
constexpr unsigned at_stages(std::initializer_list<AgentConnection::Stage> stages) {
  unsigned bits = 0;
  for (const AgentConnection::Stage stage : stages) {
    bits |= 1U << static_cast<unsigned>(stage);
  }
  return bits;
}

/// Parses how an attempt ended, from an agent's message. Throws Error (peer lost) if it is invalid.
AttemptEnd end_in(const nlohmann::json& said);
/// Parses a termination signal that is to be forwarded to the workers of other nodes. Throws Error
/// (peer lost) if it is invalid.
int signal_in(const nlohmann::json& said);

}  // namespace lockstep::launch
