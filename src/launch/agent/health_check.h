// Whether the agent is alive, for who asks over HTTP: TORCHELASTIC_HEALTH_CHECK_PORT.
#pragma once

#include <map>
#include <string>

#include "launch/system/event_loop.h"
#include "launch/system/network.h"

namespace lockstep::launch {

/// Answers every connection with 200 from the agent's own loop: an agent that hangs does not
/// answer.
class HealthCheck {
 public:
  /// Listens on `address` and `port` (0: a free one) alone. Error (environment) where that is
  /// taken.
  HealthCheck(EventLoop& loop, const std::string& address, int port);
  ~HealthCheck();
  HealthCheck(const HealthCheck&) = delete;
  HealthCheck& operator=(const HealthCheck&) = delete;
  int port() const { return port_; }

 private:
  void accept();
  void answer(int guest);

  EventLoop& loop_;
  Socket listener_;
  int port_ = 0;
  std::map<int, Socket> guests_;  // by descriptor, until they have asked
};

}  // namespace lockstep::launch
