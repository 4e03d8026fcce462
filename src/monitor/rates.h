// Rates over a sliding time window. The caller passes the time.
#pragma once

#include <deque>

namespace lockstep::monitor {

/// Amount per second over the last `window_s` seconds, and at least the last interval.
class WindowedRate {
 public:
  explicit WindowedRate(double window_s) : window_s_(window_s) {}

  /// Starts counting at `now` and discards earlier amounts.
  void start(double now);
  /// Adds the amount since the previous call. `now` must not decrease. The first call without
  /// start() starts counting.
  void add(double now, double amount);
  /// Returns the rate; 0 before any amount was added.
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
