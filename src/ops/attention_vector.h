// Attention by the loops of attention_kernel.h: internal to ops.
#pragma once

#include "ops/attention.h"

namespace lockstep::ops {

/// Whether this processor has loops for these: whole sequences (as many queries as keys) of
/// float32 or bfloat16, not so long that a row of scores leaves the caches, without dropout and
/// cap, and not with both sinks and several documents in a row (log_sum is then laid out by these).
bool has_vector_attention(const Tensor& query, const Tensor& key, const AttentionOptions& options);

/// As attention(); scores are float32. The result is laid out as [B, T, H, D], so that putting the
/// heads of a token side by side takes no copy.
Tensor vector_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

}  // namespace lockstep::ops
