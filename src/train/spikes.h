// Steps that are not like those before them: a diverging run, a bad batch, or a processor that
// computed something wrong.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace lockstep::train {

/// Watches one number of each step: the gradient's norm, before it is clipped, or the loss.
class Spikes {
 public:
  static constexpr size_t kWindow = 200;  // steps that a value is compared with
  static constexpr size_t kFewest = 50;   // below which nothing is told
  static constexpr double kQuantile = 0.99;
  /// A spike lies so many times as far above the median as the quantile does, and so many times
  /// above the quantile itself: norms have long tails, and what is told is to be looked at.
  static constexpr double kReaches = 5, kTimes = 3;

  struct Spike {
    double value = 0, median = 0, quantile = 0;
  };
  /// The value of the next step; a spike if it is one. What is no number is left out: others tell
  /// of it. A spike counts as the bound that it broke from then on, so that the window follows a
  /// run that has changed for good.
  std::optional<Spike> observe(double value);
  /// The same of a value that may yet turn out to be wrong: nothing is kept of it.
  std::optional<Spike> look(double value) const;

 private:
  std::deque<double> recent_;
};

}  // namespace lockstep::train
