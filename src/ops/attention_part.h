// Partial attention: some queries with some of their keys, by the loops of attention_kernel.h or
// ATen's flash attention (flash_part.h). Parts over disjoint keys are merged by weighting their
// outputs with e^log_sum.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Visibility of a part's keys to its queries.
enum class PartSees {
  kEarlier,  // queries and keys have the same positions; query i sees key j if j <= i
  kAll,      // every key
};

/// The output is laid out as [B, T, H, D], so that concatenating the heads of a token needs no
/// copy.
struct AttentionPart {
  Tensor out;      // [B, H, T, D], in the type of the query
  Tensor log_sum;  // [B, H, T] float32: for each query, the log of the sum of e^score
};
struct AttentionPartGradients {
  Tensor query, key, value;  // gradients, in the types and shapes of the inputs
};

/// True if this processor has loops for these CPU tensors: float32 or bfloat16, and a row of scores
/// fits in the caches.
bool has_attention_loops(const Tensor& query, const Tensor& key);
/// True if has_attention_loops() or has_flash_part().
bool has_attention_part(const Tensor& query, const Tensor& key);

/// Computes a part. query is [B, H, T, D]; key and value are [B, Hkv, S, D], H a multiple of Hkv,
/// none of them empty. Scores are float32. Only kEarlier with CPU loops supports `window`, which
/// masks keys as in AttentionOptions, and document starts. Documents add no cost: each is a
/// sequence of its own, and log_sum is then laid out by documents, for use by
/// attention_part_backward only. `seen_until` (AttentionOptions) requires document starts and no
/// window, and attention_part_backward does not support it. Records nothing for autograd.
AttentionPart attention_part(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double scale,
    PartSees sees,
    int64_t window = 0,
    const Tensor& document_starts = {},
    const Tensor& seen_until = {});

/// Merges the result `more` over some keys into the result `seen` over other keys, in place.
/// seen.out (in the type of the part or float32) and seen.log_sum may be views of a larger tensor.
/// A log_sum of -infinity means no keys yet.
void add_attention_part(const AttentionPart& seen, const AttentionPart& more);

/// Returns the gradients that a part contributes. `whole` is the merged output of all parts and its
/// log_sum.
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

/// Adds sinks [H] (AttentionOptions) to a merged result, in place. Its log_sum then includes the
/// sinks, and attention_part_backward accepts it unchanged.
void add_sinks(const AttentionPart& whole, const Tensor& sinks);
/// Returns the gradient of the sinks for such a result: a sink has the share e^(sink - log_sum) of
/// a query's weights.
Tensor sinks_gradient(const Tensor& out_gradient, const AttentionPart& whole, const Tensor& sinks);

}  // namespace lockstep::ops
