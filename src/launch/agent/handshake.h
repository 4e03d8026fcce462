// What two agents say to each other before one trusts the other, and the keys that follow from it.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::launch {

/// Of the messages of coordinator.h; agents and coordinator have the same.
inline constexpr int kProtocol = 2;

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

}  // namespace lockstep::launch
