// Dynamic loss scaling for float16.
#include "parallel/loss_scale.h"

#include <algorithm>
#include <cmath>

namespace lockstep::parallel {

LossScale::LossScale(const LossScaleOptions& options)
    : options_(options),
      value_(
          options.fixed != 0 ? options.fixed
                             : std::ldexp(1.0, static_cast<int>(options.initial_power))),
      overflows_left_(options.hysteresis) {}

void LossScale::overflowed() {
  steps_since_overflow_ = 0;
  if (overflows_left_ > 1) {
    --overflows_left_;
  } else if (options_.fixed == 0) {
    value_ = std::max(value_ / 2, options_.least);
  }
}

void LossScale::succeeded() {
  ++steps_since_overflow_;
  if (options_.consecutive) {
    overflows_left_ = options_.hysteresis;
  }
  if (options_.fixed == 0 && steps_since_overflow_ % options_.window == 0) {
    value_ *= 2;
    overflows_left_ = options_.hysteresis;
  }
}

void LossScale::set_state(const State& state) {
  value_ = options_.fixed != 0 ? options_.fixed : state.value;
  steps_since_overflow_ = state.steps_since_overflow;
  overflows_left_ = state.overflows_left;
}

}  // namespace lockstep::parallel
