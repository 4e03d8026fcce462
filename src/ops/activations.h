// Activation functions as single autograd operations that save only their inputs for the backward
// pass.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// GPT-2's GELU, x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016).
/// Computed in float32 and rounded once.
Tensor gelu_tanh(const Tensor& x);

/// SwiGLU, gate / (1 + e^-gate) * up (Shazeer, "GLU Variants Improve Transformer", 2020). Computed
/// in float32 and rounded once. Both tensors have the same shape and type.
Tensor swiglu(const Tensor& gate, const Tensor& up);

}  // namespace lockstep::ops
