// Loss scaling, which prevents the underflow of float16 gradients (Micikevicius et al., "Mixed
// Precision Training", 2018).
#pragma once

#include <cstdint>

namespace lockstep::parallel {

struct LossScaleOptions {
  double fixed = 0;            // static scale; 0: dynamic
  int64_t initial_power = 16;  // exponent of the initial dynamic scale: 2^initial_power
  int64_t window = 1000;       // number of steps without overflow after which the scale doubles
  int64_t hysteresis = 2;      // number of overflows after which the scale halves
  bool consecutive = false;    // true: a step without overflow resets the overflow count
  double least = 1;
};

/// Has the same value on every rank, because all ranks see the same gradient norm. Scales are
/// powers of two, so that scaling does not round.
class LossScale {
 public:
  /// Constructs the loss scale for float32 and bfloat16, which is always 1.
  LossScale() = default;
  explicit LossScale(const LossScaleOptions& options);

  double value() const { return value_; }
  /// Returns true if the scale can still decrease, so that a step with overflowed gradients may be
  /// skipped.
  bool can_fall() const { return options_.fixed == 0 && value_ > options_.least; }
  void overflowed();
  void succeeded();

  /// State that is stored in checkpoints.
  struct State {
    double value = 1;
    int64_t steps_since_overflow = 0;
    int64_t overflows_left = 1;
  };
  State state() const { return {value_, steps_since_overflow_, overflows_left_}; }
  void set_state(const State& state);

 private:
  LossScaleOptions options_{.fixed = 1};
  double value_ = 1;
  int64_t steps_since_overflow_ = 0;
  int64_t overflows_left_ = 1;
};

}  // namespace lockstep::parallel
