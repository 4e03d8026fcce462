// The loops of adamw.cpp, over plain pointers: one thread's part of the buffers.
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// bfloat16 as bits.
struct Bfloat16 {
  uint16_t bits;
};

/// A step's numbers, as the loop needs them (adamw.h has the formulas).
struct AdamWFactors {
  float scale;        // of the gradient
  float keep;         // 1 - lr * weight_decay
  float beta1;        //
  float new1;         // 1 - beta1
  float beta2;        //
  float new2;         // 1 - beta2
  float rate;         // lr / (1 - beta1^t)
  float root_factor;  // 1 / sqrt(1 - beta2^t)
  float epsilon;
};

/// Arrays of one length, which do not overlap. `Gradient` is float or Bfloat16.
template <class Gradient>
struct AdamWArrays {
  const Gradient* gradient;
  float* weight;
  float* exp_avg;
  float* exp_avg_sq;
  Bfloat16* low;  // the rounded weights; null where the parameters are float32

  AdamWArrays from(int64_t first) const {
    return {
        gradient + first,
        weight + first,
        exp_avg + first,
        exp_avg_sq + first,
        low == nullptr ? nullptr : low + first};
  }
};

/// Updates the first `count` elements.
void adamw(const AdamWFactors& factors, int64_t count, const AdamWArrays<float>& arrays);
void adamw(const AdamWFactors& factors, int64_t count, const AdamWArrays<Bfloat16>& arrays);

}  // namespace lockstep::ops::kernel
