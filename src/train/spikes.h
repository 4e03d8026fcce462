// Detects steps whose loss or gradient norm differs strongly from those of previous steps: a
// diverging run, a bad batch, or a computation error.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace lockstep::train {

/// Monitors one value per step: the gradient norm before clipping, or the loss.
class Spikes {
 public:
  static constexpr size_t kWindow = 200;  // number of previous steps that values are compared with
  static constexpr size_t kFewest = 50;   // minimum number of values before spikes are reported
  static constexpr double kQuantile = 0.99;
  /// A value is a spike if it exceeds the quantile by a factor of kTimes, and its distance from the
  /// median is kReaches times the quantile's distance. The limits are high because gradient norms
  /// have long tails.
  static constexpr double kReaches = 5, kTimes = 3;

  struct Spike {
    double value = 0, median = 0, quantile = 0;
  };
  /// Adds the next step's value. Returns a spike if the value is one. Ignores NaN and Inf, which
  /// are reported elsewhere. Instead of a spike, the limit that it exceeded is added, so that the
  /// limits adapt to a permanent change.
  std::optional<Spike> observe(double value);
  /// Checks a value without adding it, because the step may have to be computed again.
  std::optional<Spike> look(double value) const;

 private:
  std::deque<double> recent_;
};

}  // namespace lockstep::train
