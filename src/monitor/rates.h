// Rates over a sliding time window. The caller provides the time.
#pragma once

#include <deque>

namespace lockstep::monitor {

/// Amount per second over the last `window_s` seconds, but at least over the last interval.
class WindowedRate {
 public:
  explicit WindowedRate(double window_s) : window_s_(window_s) {}

  /// Starts counting at `now` and discards earlier amounts.
  void start(double now);
  /// Adds the amount since the last call. `now` must not decrease. If start() was not called, the
  /// first call starts counting.
  void add(double now, double amount);
  /// Returns the rate, or 0 if no amount was added yet.
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
