// Attention with the AVX-512 loops of attention_kernel.h. Internal to ops.
#pragma once

#include "ops/attention.h"

namespace lockstep::ops {

/// Returns true if this processor has loops for these tensors: whole sequences (equal numbers of
/// queries and keys) in float32 or bfloat16 that are short enough for a row of scores to fit in the
/// caches. Dropout and cap are not supported. Sinks are not supported together with packed
/// documents, because log_sum is then laid out by document.
bool has_vector_attention(const Tensor& query, const Tensor& key, const AttentionOptions& options);

/// Computes attention() with float32 scores. The result's memory layout is [B, T, H, D], so that
/// the heads of a token can be concatenated without a copy.
Tensor vector_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

}  // namespace lockstep::ops
