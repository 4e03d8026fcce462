// The product of rows with a weight, and its gradients.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

enum class WeightLayout {
  kOutIn,  // [out, in], as torch.nn.Linear
  kInOut,  // [in, out], as GPT-2's Conv1D
};

/// y = x W + b. x [..., in], weight in its layout, bias [out] -> [..., out], of one type. Summed in
/// float32 and rounded once. With AMX, bfloat16 takes loops of this library, which add the bias,
/// and sum its gradient, on the way; all else is ATen's, by way of ops/products.h.
Tensor linear(
    const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, WeightLayout layout);

// The parts of its backward pass, for those who make them at different times. No autograd.

/// [..., out] -> [..., in]
Tensor linear_input_gradient(const Tensor& y_gradient, const Tensor& weight, WeightLayout layout);

struct LinearGradients {
  Tensor weight;  // in the weight's layout
  Tensor bias;    // [out]
};
/// Of these parameters; without a bias its gradient is not asked for. Those that have a place
/// (ops/gradient_sink.h) are made there, and undefined in the result.
LinearGradients linear_weight_gradients(
    const Tensor& y_gradient,
    const Tensor& x,
    const Tensor& weight,
    const Tensor& bias,
    WeightLayout layout);
/// The bias's alone, likewise.
Tensor linear_bias_gradient(const Tensor& y_gradient, const Tensor& bias);

// Products of long rows in bfloat16 with the factors of an adapter, which are float32: with AMX, on
// a CPU. A factor counts as the sum of two bfloat16 numbers, with 16 bits of its fraction; sums are
// float32. No autograd.

/// Whether these take rows [n, k].
bool multiplies_factors(const Tensor& rows);
/// rows [n, k] x factor^T [r, k] -> [n, r] float32
Tensor times_factor(const Tensor& rows, const Tensor& factor);
/// left^T [n, r] x rows [n, k] -> [r, k] float32
Tensor factor_times(const Tensor& left, const Tensor& rows);
/// left [n, r] x right [r, k], both float32, into `result` [n, k], bfloat16, or added to it:
/// rounded once.
enum class Into { kNew, kAdded };
void write_factor_product(const Tensor& result, const Tensor& left, const Tensor& right, Into into);

}  // namespace lockstep::ops
