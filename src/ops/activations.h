// Activation functions as single autograd operations that save only their inputs for the backward
// pass.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Returns GPT-2's GELU, x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel,
/// 2016). Computes in float32 and rounds once.
Tensor gelu_tanh(const Tensor& x);

/// Returns SwiGLU, gate / (1 + e^-gate) * up (Shazeer, "GLU Variants Improve Transformer", 2020).
/// Computes in float32 and rounds once. Both tensors must have the same shape and type.
Tensor swiglu(const Tensor& gate, const Tensor& up);

}  // namespace lockstep::ops
