// Activations in one pass forward and one backward, which keep their inputs alone.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), GPT-2's GELU (Hendrycks and Gimpel, 2016).
/// Computed in float32, rounded once.
Tensor gelu_tanh(const Tensor& x);

/// gate / (1 + e^-gate) * up (Shazeer, "GLU Variants Improve Transformer", 2020). Computed in
/// float32, rounded once. Tensors of one shape and type.
Tensor swiglu(const Tensor& gate, const Tensor& up);

}  // namespace lockstep::ops
