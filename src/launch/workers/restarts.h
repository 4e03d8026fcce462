// How often the workers of a job were started again after a failure, and whether they may be once
// more.
#pragma once

#include <chrono>
#include <deque>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::launch {

/// Of --max-restarts and --restart-window: at most `most` in any `window`, or, where that is 0, in
/// all.
struct RestartLimit {
  int most = 0;
  std::chrono::seconds window{0};

  /// "of 3", or "of at most 3 in 3600 s".
  std::string text() const;
};

class Restarts {
 public:
  using Clock = std::chrono::steady_clock;

  int count() const { return count_; }
  bool may_be_one_more(const RestartLimit& limit, Clock::time_point now = Clock::now()) const;
  void add(Clock::time_point now = Clock::now());

  /// As another machine is told of them: by how long ago they were.
  nlohmann::json to_json(Clock::time_point now = Clock::now()) const;
  /// Throws nlohmann's exception where the object is none.
  static Restarts from_json(const nlohmann::json& object, Clock::time_point now = Clock::now());

 private:
  int count_ = 0;
  std::deque<Clock::time_point> last_;  // the latest, at most kRemembered
};

}  // namespace lockstep::launch
