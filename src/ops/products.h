// Matrix products, including types for which the processor has no instructions.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Returns true if the device has matrix instructions for this type. On a processor without them,
/// ATen's bfloat16 and float16 products take 3 to 50 times as long as float32 products.
bool multiplies(c10::Device device, at::ScalarType type);

// Products through ATen. Types that the processor does not support are computed in float32 and
// rounded once.

/// [m, k] x [k, n] -> [m, n], plus the bias [n] if defined. Does not support autograd.
Tensor matrix_product(const Tensor& left, const Tensor& right, const Tensor& bias = Tensor());
/// Writes the product to `result`, which may be float32 for 16-bit operands. A GPU then stores its
/// float32 sums; on other devices the sums are first rounded to 16 bits.
void write_matrix_product(const Tensor& result, const Tensor& left, const Tensor& right);
/// Computes sum [m, n] += left x right for equal types; one call on a GPU.
void add_matrix_product(const Tensor& sum, const Tensor& left, const Tensor& right);

/// [..., m, k] x [..., k, n] -> [..., m, n]. Supports autograd.
Tensor matrix_products(const Tensor& left, const Tensor& right);

}  // namespace lockstep::ops
