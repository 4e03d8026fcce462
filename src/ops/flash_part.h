// Parts of an attention (attention_part.h) by ATen's flash attention, which tells the log of each
// query's sum and takes that of the whole (Dao, "FlashAttention-2", 2023).
#pragma once

#include "ops/attention_part.h"

namespace lockstep::ops {

/// On a GPU that has it: bfloat16 or float16, heads of at most 256, a multiple of 8. On a processor
/// where has_host_loops() says that plain operations are wanted: float32 or bfloat16.
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
