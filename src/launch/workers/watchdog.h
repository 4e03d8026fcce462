// torchelastic's file timer. Workers write deadlines to a named pipe, and a worker that misses its
// deadline is ended. The client is torch.distributed.elastic.timer.FileTimerClient.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <sys/types.h>

#include "launch/system/event_loop.h"

namespace lockstep::launch {

/// Request in one line of the pipe.
struct TimerRequest {
  pid_t pid = 0;
  std::string scope;   // name of the timer; a worker may have several
  double expires = 0;  // seconds since 1970; negative: the timer is cancelled
  int signal = 0;      // signal that ends the worker; no signal if not positive
};
/// Returns nullopt if the line is not a valid request.
std::optional<TimerRequest> parse_timer_request(std::string_view line);

/// Timers of this machine's workers. Must only be used on the thread of its event loop.
class Watchdog {
 public:
  /// Creates the pipe at `path`, or at a temporary path if empty. Throws Error (environment) if
  /// this fails.
  Watchdog(EventLoop& loop, const std::string& path);
  /// Removes the pipe.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  void read_requests();
  void take(const TimerRequest& request);
  void end_late_workers();
  void set_alarm();

  EventLoop& loop_;
  std::filesystem::path path_;
  int pipe_ = -1, timer_ = -1;
  std::string line_;
  std::map<std::pair<pid_t, std::string>, TimerRequest> timers_;  // `expires`: steady clock
};

}  // namespace lockstep::launch
