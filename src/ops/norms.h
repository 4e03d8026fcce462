// Layer norm and RMS norm over the last dim, with statistics and parameter gradients summed in
// float32.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/rms_form.h"

namespace lockstep::ops {

using at::Tensor;

/// (x - mean) / sqrt(variance + eps) * weight + bias, in float32, rounded once (Ba, Kiros and
/// Hinton, 2016). x is [..., C]; weight and bias are [C] of the type of x. (ATen's bfloat16
/// gradient of the bias has a relative error of up to 0.2; this one does not.)
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);

/// weight * (x / sqrt(mean(x^2) + eps)), with the quotient computed in float32 (Zhang and Sennrich,
/// 2019). x is [..., C], weight [C].
Tensor rms_norm(
    const Tensor& x, const Tensor& weight, double eps, RmsForm form = RmsForm::kRounded);

struct SumAndNorm {
  Tensor sum, norm;
};

/// Return x + residual (of one shape and type, rounded) and its norm as above. Forward and backward
/// are one pass each, in which the sum and its gradient are read once. Also efficient if only the
/// norm is used.
SumAndNorm add_layer_norm(
    const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps);
SumAndNorm add_rms_norm(
    const Tensor& x,
    const Tensor& residual,
    const Tensor& weight,
    double eps,
    RmsForm form = RmsForm::kRounded);

/// Return x itself and its norm as above. If other operations use the returned x, their gradient is
/// added in the norm's backward pass.
SumAndNorm layer_norm_beside(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
SumAndNorm rms_norm_beside(
    const Tensor& x, const Tensor& weight, double eps, RmsForm form = RmsForm::kRounded);

}  // namespace lockstep::ops
