// Activations of bfloat16 on processors with AVX512-BF16, over plain pointers, each in one pass.
// Internal to ops.
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

struct ActivationForward {
  const void *x = nullptr, *other = nullptr;  // of swiglu: the gate, and what it multiplies
  void* y = nullptr;
};
/// Gradients of y, x and `other`.
struct ActivationBackward {
  const void *x = nullptr, *other = nullptr, *y_gradient = nullptr;
  void *x_gradient = nullptr, *other_gradient = nullptr;
};

/// Over `count` values of each.
struct ActivationLoops {
  void (*forward)(const ActivationForward&, int64_t count);
  void (*backward)(const ActivationBackward&, int64_t count);
};

extern const ActivationLoops kGelu, kSwiglu;

}  // namespace lockstep::ops::kernel
