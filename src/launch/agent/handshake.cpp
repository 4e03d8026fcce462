// Implements the mutual authentication of agents.
#include "launch/agent/handshake.h"

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/json_number.h"
#include "launch/system/secret.h"
#include "launch/workers/output.h"

namespace lockstep::launch {
namespace {

std::string handshake_text(const char* what, const std::string& side, const Handshake& said) {
  return fmt::format(
      "lockstep|{}|{}|{}|{}|{}|{}", what, side, said.challenge, said.nonce, said.run_id, said.node);
}

}  // namespace

std::string Handshake::proof(const std::string& secret, const std::string& side) const {
  return hmac_hex(secret, handshake_text("proof", side, *this));
}

std::string Handshake::key(const std::string& secret, const std::string& side) const {
  return hmac_hex(secret, handshake_text("key", side, *this));
}

std::string introduction(const nlohmann::json& node) {
  return node.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

void Greeting::take(const nlohmann::json& message, Channel& channel) {
  if (message.contains("refused")) {
    refused_ = printable(message.at("refused").get<std::string>());
    return;
  }
  if (message.contains("challenge")) {
    if (integer_of(message.at("lockstep")) != kProtocol) {
      refused_ = "the coordinator runs an incompatible version of lockstep";
      return;
    }
    if (message.at("secret").get<bool>() == secret_.empty()) {
      refused_ = secret_.empty()
                     ? "the coordinator requires a secret (--rdzv-secret-file)"
                     : "this node uses --rdzv-secret-file, but the coordinator does not";
      return;
    }
    const nlohmann::json node = to_json(self_);
    said_ = {message.at("challenge").get<std::string>(), random_hex(), run_id_, introduction(node)};
    channel.send(
        {{"join", run_id_},
         {"nonce", said_.nonce},
         {"proof", said_.proof(secret_, "agent")},
         {"node", node}});
    return;
  }
  if (!equal_in_constant_time(
          message.at("proof").get<std::string>(), said_.proof(secret_, "host"))) {
    refused_ = "the coordinator does not know the secret";
    return;
  }
  if (!secret_.empty()) {
    channel.seal(said_.key(secret_, "agent"), said_.key(secret_, "host"));
  }
  channel.trust();
  id_ = integer_of(message.at("welcome"));
}

}  // namespace lockstep::launch
