// Attention with a bias of its scores, for which the fused forms have no place.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

struct BiasedAttentionOptions {
  double scale = 1;          // of the scores, before the bias
  double dropout = 0;        // of the probabilities
  Tensor dropout_keys = {};  // [B] int64 on the CPU, where dropout > 0: see ops/dropout.h. The
                             // element is (head, query, key)
  int64_t first_head = 0,
          total_heads = 0;  // for dropout, where query holds a part of the heads; 0 heads: all
};

/// softmax(scale * query key^T + bias) value over the keys that are visible. query [B, H, T, D],
/// key and value [B, H, S, D]; bias [H, T, S] or undefined: none; visible, bool, broadcasts to [B,
/// H, T, S], or undefined: all. A query that sees no key gets the mean of the values. Scores and
/// softmax are float32; the probabilities are kept for the backward pass. Returns [B, H, T, D].
Tensor biased_attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& bias,
    const Tensor& visible,
    const BiasedAttentionOptions& options);

/// The dropout of biased_attention, of a block of probabilities [B, H, t, s] whose first query and
/// key stand there.
Tensor biased_attention_dropout(
    const Tensor& probabilities,
    const BiasedAttentionOptions& options,
    int64_t first_query,
    int64_t first_key);

}  // namespace lockstep::ops
