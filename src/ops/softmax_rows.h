// The row-wise part of the token loss on the CPU: internal to ops.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

enum class LogitsUse { kRead, kBecomeGradient };

/// For logits [n, V] (float32 or bfloat16, CPU, contiguous) and targets [n] (in [0, V)): the loss
/// of each row, float32 [n]. With kBecomeGradient the logits are overwritten by softmax -
/// onehot(target), the gradient of the loss.
Tensor softmax_losses_on_cpu(Tensor& logits, const Tensor& targets, LogitsUse use);

/// [n] bool: whether the target's logit is the largest of its row (the first of them, where they
/// are equal).
Tensor likeliest_on_cpu(const Tensor& logits, const Tensor& targets);

}  // namespace lockstep::ops
