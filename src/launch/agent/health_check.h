// Health endpoint of the agent and its workers over HTTP (TORCHELASTIC_HEALTH_CHECK_PORT).
//
//   /healthz            200 while the agent answers, with the workers' progress
//   /healthz?steps=N    503 if a worker's step takes more than N times its median
//   /readyz             200 while workers run, 503 while the agent waits for nodes or restarts them
//   anything else       200 "alive", as in torchelastic
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "launch/system/event_loop.h"
#include "launch/system/network.h"

namespace lockstep::launch {

/// State that the endpoint reports.
class Health {
 public:
  struct Answer {
    int status = 200;
    std::string type = "application/json";
    std::string body;
  };

  /// Must be called when workers have started. They write their steps to these files
  /// (launch/system/step_file.h).
  void workers_run(std::vector<std::filesystem::path> step_files);
  /// Must be called when the workers have ended.
  void workers_ended();

  /// Returns the response to a request target: a path with an optional query.
  Answer answer(std::string_view target) const;

 private:
  Answer getting_on(double most_medians) const;

  bool ready_ = false;
  std::vector<std::filesystem::path> step_files_;
};

/// Answers HTTP requests on the agent's own event loop, so that an agent that hangs does not
/// answer.
class HealthCheck {
 public:
  /// Listens on `address` and `port` (0: a free one). `health` must outlive the object. Throws
  /// Error (environment) if the port is in use.
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
  std::vector<Socket> agents_;  // connections without a complete request, the oldest first
};

}  // namespace lockstep::launch
