// torchelastic's file timer: workers write deadlines to a named pipe, and a worker that misses its
// deadline is ended (torch.distributed.elastic.timer.FileTimerClient is the client).
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

/// One line of the pipe.
struct TimerRequest {
  pid_t pid = 0;
  std::string scope;   // a worker may have several timers
  double expires = 0;  // seconds since 1970; negative: the timer is released
  int signal = 0;      // signal that ends the worker; none if not positive
};
/// Returns nullopt if the line is not a request.
std::optional<TimerRequest> parse_timer_request(std::string_view line);

/// The timers of this machine's workers. It belongs to one loop and its thread.
class Watchdog {
 public:
  /// Creates the pipe at `path`; empty: a temporary one. Throws Error (environment) if that fails.
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
