// Row-wise operations of the token loss. Internal to ops.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ops/token_loss.h"

namespace lockstep::ops {

/// Returns true if the loops of this file support these logits: on the CPU, float32 or bfloat16.
bool has_row_loops(const Tensor& logits);

/// Computes logits = softcap * tanh(logits / softcap) in place.
void cap_logits(Tensor& logits, double softcap);

/// Returns the statistics of contiguous logits [n, V] for targets [n]. For a target outside [0, V),
/// the target's logit is 0.
RowStatistics row_statistics(const Tensor& logits, const Tensor& targets);

/// Overwrites logits [n, V] (already capped if softcap > 0) with the gradient of the uncapped
/// logits: softmax * softmax_factor - onehot(target) * target_factor, times the derivative of the
/// cap. log_sum, softmax_factor and target_factor are [n], in the type of the statistics.
void logits_become_gradient(
    Tensor& logits,
    const Tensor& targets,
    const Tensor& log_sum,
    const Tensor& softmax_factor,
    const Tensor& target_factor,
    double softcap);

/// Returns [n] bool: true if the target's logit is the largest of its row (the first if several are
/// equal). Requires has_row_loops().
Tensor likeliest_on_cpu(const Tensor& logits, const Tensor& targets);

}  // namespace lockstep::ops
