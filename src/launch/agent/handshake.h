// Handshake between two agents: mutual authentication and derivation of keys.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "launch/agent/channel.h"
#include "launch/agent/membership.h"
#include "launch/plan/launch_plan.h"

namespace lockstep::launch {

/// Version of the messages in coordinator.h; agents and coordinator must have the same.
inline constexpr int kProtocol = 5;

/// Identity of the joining node and of the job.
struct Handshake {
  std::string challenge;  // drawn at random by the host
  std::string nonce;      // drawn at random by the agent
  std::string run_id;
  std::string node;  // the agent's introduction, as sent

  /// HMAC by which an agent ("agent") or the coordinator ("host") proves that it knows the secret;
  /// empty without a secret.
  std::string proof(const std::string& secret, const std::string& side) const;
  /// True if `proof` is that of `side`. Nothing proves an empty secret.
  bool is_proved(
      const std::string& secret, const std::string& side, const std::string& proof) const;
  /// Key that seals the lines sent by one side.
  std::string key(const std::string& secret, const std::string& side) const;
};

/// Returns a node's introduction as a string for authentication. It is equal on both sides.
std::string introduction(const nlohmann::json& node);

/// The agent's side of a greeting. Without a secret, nothing is sent to a host of another user.
class Greeting {
 public:
  Greeting(const RendezvousPoint& rendezvous, std::string run_id, NodeInfo self)
      : secret_(rendezvous.secret),
        only_own_user_(rendezvous.only_own_user()),
        run_id_(std::move(run_id)),
        self_(std::move(self)) {}

  /// Processes the host's next message and answers it. Must not be called after the handshake is
  /// complete or refused.
  void take(const nlohmann::json& message, Channel& channel);
  /// True if the coordinator proved that it knows the secret, or belongs to this user if there is
  /// none, and accepted this node. With a secret the channel is then sealed.
  bool welcome() const { return id_ != 0; }
  /// Returns the reason if either side refused, otherwise an empty string.
  const std::string& refused() const { return refused_; }
  /// True if this node refused a host of another user.
  bool foreign_host() const { return foreign_host_; }
  int64_t id() const { return id_; }

 private:
  std::string secret_;
  bool only_own_user_;
  std::string run_id_, refused_;
  bool foreign_host_ = false;
  NodeInfo self_;
  Handshake said_;
  int64_t id_ = 0;
};

}  // namespace lockstep::launch
