// Matrix products, including types that the processor has no instructions for.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// True if the device has matrix instructions for this type. On a processor without them, ATen's
/// bfloat16 and float16 products take 3 to 50 times as long as float32.
bool multiplies(c10::Device device, at::ScalarType type);

// Products by ATen. Types that the processor does not support are computed in float32 and rounded
// once.

/// [m, k] x [k, n] -> [m, n], plus the bias [n] if defined. No autograd.
Tensor matrix_product(const Tensor& left, const Tensor& right, const Tensor& bias = Tensor());
/// The result may be float32 for 16-bit operands: a GPU then stores its float32 sums; elsewhere
/// they are rounded to 16 bits first.
void write_matrix_product(const Tensor& result, const Tensor& left, const Tensor& right);
/// sum [m, n] += left x right, with the same types, in one call on a GPU.
void add_matrix_product(const Tensor& sum, const Tensor& left, const Tensor& right);

/// [..., m, k] x [..., k, n] -> [..., m, n], with autograd.
Tensor matrix_products(const Tensor& left, const Tensor& right);

}  // namespace lockstep::ops
