// Rates over the recent past. The clock is passed in.
#pragma once

#include <deque>

namespace lockstep::monitor {

/// How much came a second, over the last `window_s` seconds (and at least the last interval).
class WindowedRate {
 public:
  explicit WindowedRate(double window_s) : window_s_(window_s) {}

  /// Begins counting at `now`; what came before is forgotten.
  void start(double now);
  /// `amount` came in the time since the last call. `now` never goes back. The first call without a
  /// start() begins.
  void add(double now, double amount);
  /// 0 before anything was added.
  double per_second() const;

 private:
  struct Point {
    double time;
    double total;
  };
  double window_s_;
  double total_ = 0;
  std::deque<Point> points_;
};

}  // namespace lockstep::monitor
