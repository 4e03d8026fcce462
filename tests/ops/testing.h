// Random tensors and errors of results, for the tests of ops.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace lockstep::ops {

inline at::Tensor random(at::IntArrayRef sizes, uint64_t seed = 1) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::empty(sizes).normal_(0, 1, generator);
}

/// The largest difference, relative to the largest element wanted.
inline double error(const at::Tensor& got, const at::Tensor& wanted) {
  const at::Tensor exact = wanted.to(at::kDouble);
  if (got.sizes() != wanted.sizes()) {
    return INFINITY;
  }
  if (exact.numel() == 0) {
    return 0;
  }
  const double largest = exact.abs().max().item<double>();
  return (got.to(at::kDouble) - exact).abs().max().item<double>() / (largest > 0 ? largest : 1);
}

/// A leaf of another type, that requires a gradient.
inline at::Tensor leaf(const at::Tensor& value, at::ScalarType type) {
  return value.detach().to(type).clone().set_requires_grad(true);
}

}  // namespace lockstep::ops
