// Layer norm and RMS norm over the last dimension. Statistics and parameter gradients are summed in
// float32.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/rms_form.h"

namespace lockstep::ops {

using at::Tensor;

/// Returns (x - mean) / sqrt(variance + eps) * weight + bias, computed in float32 and rounded once
/// (Ba, Kiros and Hinton, 2016). x is [..., C]; weight and bias are [C] and have the type of x.
/// (ATen's bfloat16 gradient of the bias has a relative error of up to 0.2; this one does not.)
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);

/// Returns weight * (x / sqrt(mean(x^2) + eps)), with the quotient computed in float32 (Zhang and
/// Sennrich, 2019). x is [..., C], weight is [C].
Tensor rms_norm(
    const Tensor& x, const Tensor& weight, double eps, RmsForm form = RmsForm::kRounded);

struct SumAndNorm {
  Tensor sum, norm;
};

/// Return the rounded sum x + residual (of the same shape and type) and its norm. The forward and
/// the backward pass each read the sum or its gradient only once. Also efficient if only the norm
/// is used.
SumAndNorm add_layer_norm(
    const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps);
SumAndNorm add_rms_norm(
    const Tensor& x,
    const Tensor& residual,
    const Tensor& weight,
    double eps,
    RmsForm form = RmsForm::kRounded);

/// Return x and its norm. If other operations use the returned x, the norm's backward pass adds
/// their gradient.
SumAndNorm layer_norm_beside(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
SumAndNorm rms_norm_beside(
    const Tensor& x, const Tensor& weight, double eps, RmsForm form = RmsForm::kRounded);

}  // namespace lockstep::ops
