// Attention with an additive score bias, which the fused implementations do not support.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

struct BiasedAttentionOptions {
  double scale = 1;          // factor of the scores, applied before the bias
  double dropout = 0;        // dropout rate of the attention probabilities
  Tensor dropout_keys = {};  // [B] int64 on the CPU, required if dropout > 0 (ops/dropout.h); the
                             // element index is (head, query, key)
  int64_t first_head = 0,
          total_heads = 0;  // for dropout, if query has only some of the heads; total_heads 0:
                            // query has all heads
};

/// Returns softmax(scale * query key^T + bias) value over the visible keys, [B, H, T, D]. query is
/// [B, H, T, D]; key and value are [B, H, S, D]. bias is [H, T, S]; undefined: no bias. visible
/// (bool) broadcasts to [B, H, T, S]; undefined: all keys are visible. The output of a query
/// without visible keys is the mean of the values. Scores and softmax are computed in float32. The
/// probabilities are saved for the backward pass.
Tensor biased_attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& bias,
    const Tensor& visible,
    const BiasedAttentionOptions& options);

/// Applies the dropout of biased_attention to a block of probabilities [B, H, t, s] that starts at
/// the given query and key.
Tensor biased_attention_dropout(
    const Tensor& probabilities,
    const BiasedAttentionOptions& options,
    int64_t first_query,
    int64_t first_key);

}  // namespace lockstep::ops
