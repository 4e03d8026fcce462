// Detects steps that differ strongly from previous ones: a diverging run, a bad batch, or a
// computation error.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace lockstep::train {

/// Monitors one value per step: the gradient norm before clipping, or the loss.
class Spikes {
 public:
  static constexpr size_t kWindow = 200;  // number of previous steps to compare with
  static constexpr size_t kFewest = 50;   // minimum number of values before spikes are reported
  static constexpr double kQuantile = 0.99;
  /// A spike exceeds the quantile by a factor of kTimes, and its distance from the median is
  /// kReaches times that of the quantile. Gradient norms have long tails, and only values worth a
  /// look should be reported.
  static constexpr double kReaches = 5, kTimes = 3;

  struct Spike {
    double value = 0, median = 0, quantile = 0;
  };
  /// Adds the next step's value and returns a spike if it is one. Ignores NaN and Inf, which are
  /// reported elsewhere. A spike enters the window as the bound that it exceeded, so that the
  /// window adapts to a permanent change.
  std::optional<Spike> observe(double value);
  /// Checks a value without adding it, because it may still turn out to be wrong.
  std::optional<Spike> look(double value) const;

 private:
  std::deque<double> recent_;
};

}  // namespace lockstep::train
