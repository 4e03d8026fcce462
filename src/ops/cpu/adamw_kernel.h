// AdamW loops over plain pointers, for the range of the buffers that one thread updates.
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// A bfloat16 value, stored as bits.
struct Bfloat16 {
  uint16_t bits;
};

/// Factors of a step, precomputed for the loop (adamw.h has the formulas).
struct AdamWFactors {
  float scale;  // gradient scale
  float keep;   // 1 - lr * weight_decay
  float beta1;
  float new1;  // 1 - beta1
  float beta2;
  float new2;         // 1 - beta2
  float rate;         // lr / (1 - beta1^t)
  float root_factor;  // 1 / sqrt(1 - beta2^t)
  float epsilon;
};

/// Non-overlapping arrays of equal length. `Gradient` is float or Bfloat16.
template <class Gradient>
struct AdamWArrays {
  const Gradient* gradient;
  float* weight;
  float* exp_avg;
  float* exp_avg_sq;
  Bfloat16* low;  // rounded weights; null if the parameters are float32

  AdamWArrays from(int64_t first) const {
    return {
        gradient + first,
        weight + first,
        exp_avg + first,
        exp_avg_sq + first,
        low == nullptr ? nullptr : low + first};
  }
};

/// Updates the first `count` elements of the arrays.
void adamw(const AdamWFactors& factors, int64_t count, const AdamWArrays<float>& arrays);
void adamw(const AdamWFactors& factors, int64_t count, const AdamWArrays<Bfloat16>& arrays);

}  // namespace lockstep::ops::kernel
