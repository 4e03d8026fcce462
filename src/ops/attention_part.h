// Partial attention: some queries attend to some of their keys. Uses the loops of
// attention_kernel.h or ATen's flash attention (flash_part.h). To merge parts over disjoint sets of
// keys, their outputs are weighted by e^log_sum.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Visibility of the keys of a part to its queries.
enum class PartSees {
  kEarlier,  // queries and keys have the same positions; query i attends to key j if j <= i
  kAll,      // all keys are visible
};

/// Result of partial attention. The output's memory layout is [B, T, H, D], so that the heads of a
/// token can be concatenated without a copy.
struct AttentionPart {
  Tensor out;      // [B, H, T, D], in the type of the query
  Tensor log_sum;  // [B, H, T] float32: log of the sum of e^score for each query
};
struct AttentionPartGradients {
  Tensor query, key, value;  // gradients, in the types and shapes of the inputs
};

/// Returns true if this processor has custom loops for these CPU tensors: float32 or bfloat16, with
/// a row of scores that fits in the caches.
bool has_attention_loops(const Tensor& query, const Tensor& key);
/// Returns true if has_attention_loops() or has_flash_part().
bool has_attention_part(const Tensor& query, const Tensor& key);

/// Computes a part. query is [B, H, T, D]; key and value are [B, Hkv, S, D]; H is a multiple of
/// Hkv; no size is 0. Scores are float32. `window`, which masks keys as in AttentionOptions, and
/// document starts are supported only with kEarlier and CPU loops. Documents cost nothing extra:
/// each is processed as a separate sequence. log_sum is then laid out by document and may only be
/// passed to attention_part_backward. `seen_until` (AttentionOptions) requires document starts and
/// no window, and attention_part_backward does not support it. Records nothing for autograd.
AttentionPart attention_part(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double scale,
    PartSees sees,
    int64_t window = 0,
    const Tensor& document_starts = {},
    const Tensor& seen_until = {});

/// Merges the result `more` into the result `seen`, which covers other keys, in place. seen.out (in
/// the type of the part or float32) and seen.log_sum may be views of a larger tensor. A log_sum of
/// -infinity means that no keys have been processed yet.
void add_attention_part(const AttentionPart& seen, const AttentionPart& more);

/// Returns a part's contribution to the gradients. `whole` is the merged output of all parts with
/// its log_sum.
AttentionPartGradients attention_part_backward(
    const Tensor& out_gradient,
    const AttentionPart& whole,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double scale,
    PartSees sees,
    int64_t window = 0,
    const Tensor& document_starts = {});

/// Adds sinks [H] (AttentionOptions) to a merged result, in place. The updated log_sum includes the
/// sinks and may be passed to attention_part_backward.
void add_sinks(const AttentionPart& whole, const Tensor& sinks);
/// Returns the gradient of the sinks for such a result. The weight of a sink for a query is e^(sink
/// - log_sum).
Tensor sinks_gradient(const Tensor& out_gradient, const AttentionPart& whole, const Tensor& sinks);

}  // namespace lockstep::ops
