#include "launch/agent/handshake.h"

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "launch/system/secret.h"

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

}  // namespace lockstep::launch
