// Handshake between two agents: mutual authentication and derivation of keys.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "launch/agent/channel.h"
#include "launch/agent/membership.h"

namespace lockstep::launch {

/// Version of the messages in coordinator.h. Agents and coordinator must use the same version.
inline constexpr int kProtocol = 4;

/// Identity of the joining node and of the job.
struct Handshake {
  std::string challenge;  // drawn at random by the host
  std::string nonce;      // drawn at random by the agent
  std::string run_id;
  std::string node;  // the agent's introduction, as sent

  /// Returns the HMAC with which an agent (`side` "agent") or the coordinator ("host") proves that
  /// it knows the secret.
  std::string proof(const std::string& secret, const std::string& side) const;
  /// Returns the key that seals the lines sent by one side.
  std::string key(const std::string& secret, const std::string& side) const;
};

/// Returns a node's introduction as a string for authentication. It is equal on both sides.
std::string introduction(const nlohmann::json& node);

/// Agent's side of the handshake.
class Greeting {
 public:
  Greeting(std::string secret, std::string run_id, NodeInfo self)
      : secret_(std::move(secret)),
        run_id_(std::move(run_id)),
        self_(std::move(self)) {}

  /// Processes the host's next message and answers it. Must not be called after the handshake is
  /// complete or refused.
  void take(const nlohmann::json& message, Channel& channel);
  /// Returns true if the coordinator has proved that it knows the secret and has accepted this
  /// node. The channel is then sealed.
  bool welcome() const { return id_ != 0; }
  /// Returns the reason if either side refused, otherwise an empty string.
  const std::string& refused() const { return refused_; }
  int64_t id() const { return id_; }

 private:
  std::string secret_, run_id_, refused_;
  NodeInfo self_;
  Handshake said_;
  int64_t id_ = 0;
};

}  // namespace lockstep::launch
