// Partial attention (attention_part.h) by ATen's flash attention, which returns the log-sum-exp of
// each query and accepts that of the whole in its backward pass (Dao, "FlashAttention-2", 2023).
#pragma once

#include "ops/attention_part.h"

namespace lockstep::ops {

/// True on a GPU with flash attention for bfloat16 or float16 and a head size of at most 256, a
/// multiple of 8. True on a CPU without has_host_loops() (plain operations requested) for float32
/// or bfloat16.
bool has_flash_part(const Tensor& query, const Tensor& key);

/// As attention_part and attention_part_backward, without windows; no size is 0.
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
