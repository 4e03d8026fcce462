// Products of matrices in types that a processor has no instructions for.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Whether the device multiplies matrices of this type. For bfloat16 and float16 on a processor
/// that does not, ATen takes 3 to 50 times as long as for float32.
bool multiplies(c10::Device device, at::ScalarType type);

// Products by ATen. Of types that the processor does not multiply they are made in float32 and
// rounded once.

/// [m, k] x [k, n] -> [m, n], plus the bias [n] if it is defined. No autograd.
Tensor matrix_product(const Tensor& left, const Tensor& right, const Tensor& bias = Tensor());
/// The result may be float32 where operands are of 16 bits: a GPU keeps the float32 sums that its
/// product is made of; elsewhere they are rounded to 16 bits first.
void write_matrix_product(const Tensor& result, const Tensor& left, const Tensor& right);
/// sum [m, n] += left x right, likewise, and in one call on a GPU.
void add_matrix_product(const Tensor& sum, const Tensor& left, const Tensor& right);

/// [..., m, k] x [..., k, n] -> [..., m, n], with gradients.
Tensor matrix_products(const Tensor& left, const Tensor& right);

}  // namespace lockstep::ops
