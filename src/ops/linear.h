// Product of activations with a weight, and its gradients.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

enum class WeightLayout {
  kOutIn,  // [out, in], as in torch.nn.Linear
  kInOut,  // [in, out], as in GPT-2's Conv1D
};

/// Returns y = x W + b. x is [..., in], the weight has the given layout, the bias is [out], and the
/// result is [..., out], all of one type. Sums in float32 and rounds once. With AMX, bfloat16
/// products use custom loops, which also add the bias and sum its gradient. All other products use
/// ATen through ops/products.h.
Tensor linear(
    const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, WeightLayout layout);

// Parts of the backward pass, for callers that compute them separately. No autograd support.

/// [..., out] -> [..., in]
Tensor linear_input_gradient(const Tensor& y_gradient, const Tensor& weight, WeightLayout layout);

struct LinearGradients {
  Tensor weight;  // in the layout of the weight
  Tensor bias;    // [out]
};
/// Returns the gradients of the weight and the bias; the bias gradient is undefined without a bias.
/// The gradient of a parameter with a gradient sink (ops/gradient_sink.h) is written to the sink's
/// memory and is undefined in the result.
LinearGradients linear_weight_gradients(
    const Tensor& y_gradient,
    const Tensor& x,
    const Tensor& weight,
    const Tensor& bias,
    WeightLayout layout);
/// Returns only the gradient of the bias, under the same rules.
Tensor linear_bias_gradient(const Tensor& y_gradient, const Tensor& bias);

// Products of bfloat16 rows with float32 adapter factors on a CPU with AMX. A factor is represented
// as the sum of two bfloat16 values, which preserves 16 bits of its fraction. Sums are float32. No
// autograd support.

/// Returns true if the functions below support these rows [n, k].
bool multiplies_factors(const Tensor& rows);
/// rows [n, k] x factor^T [r, k] -> [n, r] float32
Tensor times_factor(const Tensor& rows, const Tensor& factor);
/// left^T [n, r] x rows [n, k] -> [r, k] float32
Tensor factor_times(const Tensor& left, const Tensor& rows);
/// Writes the product of left [n, r] and right [r, k], both float32, to the bfloat16 `result` [n,
/// k], or adds it to `result`. Rounds once.
enum class Into { kNew, kAdded };
void write_factor_product(const Tensor& result, const Tensor& left, const Tensor& right, Into into);

}  // namespace lockstep::ops
