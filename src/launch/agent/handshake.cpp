// Implements the mutual authentication of agents.
#include "launch/agent/handshake.h"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/format.h"
#include "base/json_number.h"
#include "launch/system/secret.h"
#include "launch/workers/output.h"

namespace lockstep::launch {
namespace {

// Describes the owner of the host at the other end of a connection.
std::string foreign_host_text(const Socket& socket) {
  const std::string program =
      fmt::format("the program at {} port {}", peer_address(socket), peer_port(socket));
  const std::optional<unsigned> owner = peer_user(socket);
  return owner ? fmt::format(
                     "{} belongs to {}, but this job to {}",
                     program,
                     user_name(*owner),
                     user_name(::geteuid()))
               : fmt::format("the owner of {} is unknown", program);
}

std::string handshake_text(const char* what, const std::string& side, const Handshake& said) {
  return fmt::format(
      "lockstep|{}|{}|{}|{}|{}|{}", what, side, said.challenge, said.nonce, said.run_id, said.node);
}

}  // namespace

std::string Handshake::proof(const std::string& secret, const std::string& side) const {
  return secret.empty() ? "" : hmac_hex(secret, handshake_text("proof", side, *this));
}

bool Handshake::is_proved(
    const std::string& secret, const std::string& side, const std::string& proof) const {
  return !secret.empty() && equal_in_constant_time(proof, this->proof(secret, side));
}

std::string Handshake::key(const std::string& secret, const std::string& side) const {
  return hmac_hex(secret, handshake_text("key", side, *this));
}

std::string introduction(const nlohmann::json& node) {
  return node.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

void Greeting::take(const nlohmann::json& message, Channel& channel) {
  // The host has accepted the connection, since it sent a message: its end has an owner.
  if (only_own_user_ && !is_from_own_user(channel.socket())) {
    foreign_host_ = true;
    refused_ = foreign_host_text(channel.socket());
    return;
  }
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
  if (said_.nonce.empty()) {
    refused_ = "the coordinator sent no challenge";
    return;
  }
  if (!secret_.empty()) {
    if (!said_.is_proved(secret_, "host", message.at("proof").get<std::string>())) {
      refused_ = "the coordinator does not know the secret";
      return;
    }
    channel.seal(said_.key(secret_, "agent"), said_.key(secret_, "host"));
  }
  channel.trust();
  id_ = integer_of(message.at("welcome"));
}

}  // namespace lockstep::launch
