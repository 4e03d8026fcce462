// Whether the agent and its workers are alive, ready and getting on, for who asks over HTTP:
// TORCHELASTIC_HEALTH_CHECK_PORT.
//
//   /healthz            200 as long as the agent answers, with how far its workers are
//   /healthz?steps=N    503 where a worker's step takes more than N times its median
//   /readyz             200 while workers run, 503 while the agent waits for others or starts anew
//   anything else       200 "alive", as torchelastic has it
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launch/system/event_loop.h"
#include "launch/system/network.h"

namespace lockstep::launch {

/// What there is to tell.
class Health {
 public:
  struct Answer {
    int status = 200;
    std::string type = "application/json";
    std::string body;
  };

  /// Workers run, whose steps are in these files (launch/system/step_file.h).
  void workers_run(std::vector<std::filesystem::path> step_files);
  /// None do.
  void workers_ended();

  /// To a request's target: a path, and perhaps a query.
  Answer answer(std::string_view target) const;

 private:
  Answer getting_on(double most_medians) const;

  bool ready_ = false;
  std::vector<std::filesystem::path> step_files_;
};

/// Answers every connection from the agent's own loop: an agent that hangs does not answer.
class HealthCheck {
 public:
  /// Listens on `address` and `port` (0: a free one) alone. `health` must outlive it. Error
  /// (environment) where the port is taken.
  HealthCheck(EventLoop& loop, const std::string& address, int port, const Health& health);
  ~HealthCheck();
  HealthCheck(const HealthCheck&) = delete;
  HealthCheck& operator=(const HealthCheck&) = delete;
  int port() const { return port_; }

 private:
  void accept();
  void answer(int agent);

  EventLoop& loop_;
  const Health& health_;
  Socket listener_;
  int port_ = 0;
  std::map<int, Socket> agents_;  // by descriptor, until they have asked
};

}  // namespace lockstep::launch
