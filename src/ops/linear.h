// Product of rows with a weight, and its gradients.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

enum class WeightLayout {
  kOutIn,  // [out, in], as in torch.nn.Linear
  kInOut,  // [in, out], as in GPT-2's Conv1D
};

/// y = x W + b. x [..., in], weight in its layout, bias [out] -> [..., out], all of one type.
/// Summed in float32 and rounded once. With AMX, bfloat16 uses loops of this library, which also
/// add the bias and sum its gradient. Everything else uses ATen through ops/products.h.
Tensor linear(
    const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, WeightLayout layout);

// Separate parts of the backward pass, for callers that compute them at different times. No
// autograd.

/// [..., out] -> [..., in]
Tensor linear_input_gradient(const Tensor& y_gradient, const Tensor& weight, WeightLayout layout);

struct LinearGradients {
  Tensor weight;  // in the weight's layout
  Tensor bias;    // [out]
};
/// Returns the gradients of these parameters; without a bias, its gradient is undefined. Gradients
/// of parameters with a place (ops/gradient_sink.h) are written there and undefined in the result.
LinearGradients linear_weight_gradients(
    const Tensor& y_gradient,
    const Tensor& x,
    const Tensor& weight,
    const Tensor& bias,
    WeightLayout layout);
/// Returns only the bias's gradient, under the same rules.
Tensor linear_bias_gradient(const Tensor& y_gradient, const Tensor& bias);

// Products of bfloat16 rows with float32 adapter factors, with AMX on a CPU. A factor is split into
// the sum of two bfloat16 values, which preserves 16 bits of its fraction; sums are float32. No
// autograd.

/// True if the functions below support rows [n, k].
bool multiplies_factors(const Tensor& rows);
/// rows [n, k] x factor^T [r, k] -> [n, r] float32
Tensor times_factor(const Tensor& rows, const Tensor& factor);
/// left^T [n, r] x rows [n, k] -> [r, k] float32
Tensor factor_times(const Tensor& left, const Tensor& rows);
/// Writes left [n, r] x right [r, k], both float32, to the bfloat16 `result` [n, k], or adds it;
/// rounded once.
enum class Into { kNew, kAdded };
void write_factor_product(const Tensor& result, const Tensor& left, const Tensor& right, Into into);

}  // namespace lockstep::ops
