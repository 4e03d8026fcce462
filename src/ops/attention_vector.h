// Attention by the AVX-512 loops of attention_kernel.h. Internal to ops.
#pragma once

#include "ops/attention.h"

namespace lockstep::ops {

/// True if this processor has loops for these tensors: whole sequences (as many queries as keys) in
/// float32 or bfloat16, short enough that a row of scores fits in the caches. Dropout and cap are
/// not supported, and sinks are not supported together with packed documents (log_sum is then laid
/// out by documents).
bool has_vector_attention(const Tensor& query, const Tensor& key, const AttentionOptions& options);

/// As attention(); scores are float32. The result is laid out as [B, T, H, D], so that
/// concatenating the heads of a token needs no copy.
Tensor vector_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

}  // namespace lockstep::ops
