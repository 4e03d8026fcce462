// Log lines for refused connections, at a bounded rate.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

namespace lockstep::launch {

/// Counts refused agents. Each address has one log line per minute, so that clients cannot fill the
/// log; the next line has the number of refusals in between.
class Refusals {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPause{60};
  /// Addresses with a line of their own. All others share one.
  static constexpr size_t kMostAddresses = 256;

  /// Returns the line to log for a refusal at `now`; empty if the address had one within kPause.
  std::string add(const std::string& address, const std::string& why, Clock::time_point now);

 private:
  struct Logged {
    Clock::time_point last;
    size_t unlogged = 0;  // refusals since
  };
  std::map<std::string, Logged> logged_;
};

}  // namespace lockstep::launch
