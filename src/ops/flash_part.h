// Partial attention (attention_part.h) by ATen's flash attention, which returns the log-sum-exp of
// each query. Its backward pass accepts the log-sum-exp of the merged result (Dao,
// "FlashAttention-2", 2023).
#pragma once

#include "ops/attention_part.h"

namespace lockstep::ops {

/// Returns true on a GPU that supports flash attention, for bfloat16 or float16 and a head size
/// that is a multiple of 8 and at most 256. Also returns true on a CPU if has_host_loops() is false
/// (plain operations requested), for float32 or bfloat16.
bool has_flash_part(const Tensor& query, const Tensor& key);

/// Same as attention_part and attention_part_backward, but without windows. No size may be 0.
AttentionPart flash_part(
    const Tensor& query, const Tensor& key, const Tensor& value, double scale, PartSees sees);
AttentionPartGradients flash_part_backward(
    const Tensor& out_gradient,
    const AttentionPart& whole,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double scale,
    PartSees sees);

}  // namespace lockstep::ops
