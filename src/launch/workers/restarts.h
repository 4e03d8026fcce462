// Counts the restarts of a job's workers and limits them.
#pragma once

#include <chrono>
#include <deque>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::launch {

/// --max-restarts and --restart-window: at most `most` restarts in any interval of length `window`.
/// If `window` is 0, at most `most` restarts in total.
struct RestartLimit {
  int most = 0;
  std::chrono::seconds window{0};

  /// Returns "of 3", or "of at most 3 in 3600 s".
  std::string text() const;
};

class Restarts {
 public:
  using Clock = std::chrono::steady_clock;

  int count() const { return count_; }
  bool may_be_one_more(const RestartLimit& limit, Clock::time_point now = Clock::now()) const;
  void add(Clock::time_point now = Clock::now());

  /// Times are written as ages, because clocks differ between machines.
  nlohmann::json to_json(Clock::time_point now = Clock::now()) const;
  /// Throws nlohmann's exception if the object is invalid.
  static Restarts from_json(const nlohmann::json& object, Clock::time_point now = Clock::now());

 private:
  int count_ = 0;
  std::deque<Clock::time_point> last_;  // latest restarts, at most kRemembered
};

}  // namespace lockstep::launch
