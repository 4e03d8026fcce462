// bfloat16 activation loops over plain pointers for processors with AVX512-BF16; one pass each.
// Internal to ops.
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

struct ActivationForward {
  const void *x = nullptr, *other = nullptr;  // inputs; for swiglu: gate and up
  void* y = nullptr;
};
/// Inputs of the backward pass, and the gradients of y, x and `other`.
struct ActivationBackward {
  const void *x = nullptr, *other = nullptr, *y_gradient = nullptr;
  void *x_gradient = nullptr, *other_gradient = nullptr;
};

/// Loops that process `count` values of each array.
struct ActivationLoops {
  void (*forward)(const ActivationForward&, int64_t count);
  void (*backward)(const ActivationBackward&, int64_t count);
};

extern const ActivationLoops kGelu, kSwiglu;

}  // namespace lockstep::ops::kernel
