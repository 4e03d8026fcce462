// What two agents say to each other before one trusts the other, and the keys that follow from it.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "launch/agent/channel.h"
#include "launch/agent/membership.h"

namespace lockstep::launch {

/// Of the messages of coordinator.h; agents and coordinator have the same.
inline constexpr int kProtocol = 4;

/// Who joins which job.
struct Handshake {
  std::string challenge;  // drawn by the host
  std::string nonce;      // drawn by the agent
  std::string run_id;
  std::string node;  // the agent's introduction, as it was sent

  /// The HMAC that an agent ("agent") or the coordinator ("host") proves the secret with.
  std::string proof(const std::string& secret, const std::string& side) const;
  /// The key of the lines that a side sends.
  std::string key(const std::string& secret, const std::string& side) const;
};

/// A node's introduction as the text that is proved: the same on both sides.
std::string introduction(const nlohmann::json& node);

/// The agent's side of a greeting.
class Greeting {
 public:
  Greeting(std::string secret, std::string run_id, NodeInfo self)
      : secret_(std::move(secret)),
        run_id_(std::move(run_id)),
        self_(std::move(self)) {}

  /// Takes the host's next word, while it is neither over nor refused, and answers it.
  void take(const nlohmann::json& message, Channel& channel);
  /// The host has proved the secret and took this node in: the channel is sealed.
  bool welcome() const { return id_ != 0; }
  /// Why one of both sides does not want the other; empty: not so.
  const std::string& refused() const { return refused_; }
  int64_t id() const { return id_; }

 private:
  std::string secret_, run_id_, refused_;
  NodeInfo self_;
  Handshake said_;
  int64_t id_ = 0;
};

}  // namespace lockstep::launch
