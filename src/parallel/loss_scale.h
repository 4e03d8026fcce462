// The factor that keeps float16 gradients from vanishing (Micikevicius et al., "Mixed Precision
// Training", 2018).
#pragma once

#include <cstdint>

namespace lockstep::parallel {

struct LossScaleOptions {
  double fixed = 0;            // not 0: the factor, for ever
  int64_t initial_power = 16;  // else it begins at 2 to this
  int64_t window = 1000;       // steps without an overflow before it doubles
  int64_t hysteresis = 2;      // overflows before it halves
  bool consecutive = false;    // a good step makes up for those before it
  double least = 1;
};

/// The same on every rank, for all see the same gradients' norm. Powers of two, so that scaling
/// rounds nothing.
class LossScale {
 public:
  /// Of float32 and bfloat16: always 1.
  LossScale() = default;
  explicit LossScale(const LossScaleOptions& options);

  double value() const { return value_; }
  /// Whether a step whose gradients overflowed may be left out, for the factor can still fall.
  bool can_fall() const { return options_.fixed == 0 && value_ > options_.least; }
  void overflowed();
  void succeeded();

  /// What a checkpoint holds.
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
