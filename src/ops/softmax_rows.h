// The row-wise part of the token loss: internal to ops.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ops/token_loss.h"

namespace lockstep::ops {

/// Whether the loops of this file take these logits: on the CPU, float32 or bfloat16.
bool has_row_loops(const Tensor& logits);

/// logits = softcap * tanh(logits / softcap), in place.
void cap_logits(Tensor& logits, double softcap);

/// Of logits [n, V], contiguous, and targets [n]: one outside [0, V) has a logit of 0.
RowStatistics row_statistics(const Tensor& logits, const Tensor& targets);

/// logits [n, V] (capped ones where softcap > 0) become the gradient of the logits before the cap:
/// softmax * softmax_factor - onehot(target) * target_factor, times the cap's derivative. log_sum,
/// softmax_factor and target_factor are [n], of the type of the statistics.
void logits_become_gradient(
    Tensor& logits,
    const Tensor& targets,
    const Tensor& log_sum,
    const Tensor& softmax_factor,
    const Tensor& target_factor,
    double softcap);

/// [n] bool: whether the target's logit is the largest of its row (the first of them, where they
/// are equal). Where has_row_loops.
Tensor likeliest_on_cpu(const Tensor& logits, const Tensor& targets);

}  // namespace lockstep::ops
