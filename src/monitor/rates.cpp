// Computes rates over a sliding time window.
#include "monitor/rates.h"

namespace lockstep::monitor {

void WindowedRate::start(double now) {
  total_ = 0;
  points_.assign(1, {now, 0});
}

void WindowedRate::add(double now, double amount) {
  if (points_.empty()) {
    start(now);
    return;
  }
  total_ += amount;
  points_.push_back({now, total_});
  // Keep the oldest point as long as the next one is in the window, so that the rate covers the
  // whole window.
  while (points_.size() > 2 && points_[1].time <= now - window_s_) {
    points_.pop_front();
  }
}

double WindowedRate::per_second() const {
  if (points_.size() < 2) {
    return 0;
  }
  const double seconds = points_.back().time - points_.front().time;
  return seconds > 0 ? (points_.back().total - points_.front().total) / seconds : 0;
}

}  // namespace lockstep::monitor
