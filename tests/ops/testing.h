// Random tensors, leaves and errors for the tests of ops.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "numbers.h"

namespace lockstep::ops {

inline at::Tensor random(at::IntArrayRef sizes, uint64_t seed = 1) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::empty(sizes).normal_(0, 1, generator);
}

using numbers::error;

/// Returns a leaf of another type that requires a gradient.
inline at::Tensor leaf(const at::Tensor& value, at::ScalarType type) {
  return value.detach().to(type).clone().set_requires_grad(true);
}

}  // namespace lockstep::ops
