// Validates messages of agents.
#include "launch/agent/agent_connection.h"

#include <csignal>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json_number.h"

namespace lockstep::launch {

AttemptEnd end_in(const nlohmann::json& said) {
  const int64_t number = integer_of(said);
  if (number < 0 || number > static_cast<int64_t>(AttemptEnd::kInterrupted)) {
    throw Error(ErrorKind::kPeerLost, fmt::format("invalid attempt outcome {}", number));
  }
  return static_cast<AttemptEnd>(number);
}

int signal_in(const nlohmann::json& said) {
  const int64_t number = integer_of(said);
  if (number < 1 || number >= NSIG || number == SIGKILL || number == SIGSTOP) {
    throw Error(ErrorKind::kPeerLost, fmt::format("signal {} cannot be forwarded", number));
  }
  return static_cast<int>(number);
}

}  // namespace lockstep::launch
