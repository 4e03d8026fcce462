// A part of an attention: some queries with some of the keys that they see, by the loops of
// attention_kernel.h or ATen's flash attention (flash_part.h). Parts over all keys make the whole:
// their outputs are weighted by e^log_sum.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// What the queries of a part see of its keys.
enum class PartSees {
  kEarlier,  // as many queries as keys, of the same positions: key j is seen by query i where j <=
             // i
  kAll,      // every key
};

/// The output is laid out as [B, T, H, D], so that putting the heads of a token side by side takes
/// no copy.
struct AttentionPart {
  Tensor out;      // [B, H, T, D], in the type of the query
  Tensor log_sum;  // [B, H, T] float32: of each query, the log of the sum of e^score
};
struct AttentionPartGradients {
  Tensor query, key, value;  // in the types and shapes of these
};

/// Whether this processor has loops for these, on the CPU: float32 or bfloat16, and not so many
/// keys that a row of scores leaves the caches.
bool has_attention_loops(const Tensor& query, const Tensor& key);
/// Those, or has_flash_part().
bool has_attention_part(const Tensor& query, const Tensor& key);

/// query [B, H, T, D], key and value [B, Hkv, S, D], H a multiple of Hkv, none of them empty;
/// scores are float32. A window, of kEarlier and loops alone, hides keys as AttentionOptions has
/// it; so do the starts of documents, which cost nothing: each document is a sequence of its own,
/// and log_sum is then laid out by documents, for attention_part_backward alone. `seen_until`, with
/// these starts and without a window, as there; attention_part_backward does not know it. No
/// gradient of its own.
AttentionPart attention_part(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double scale,
    PartSees sees,
    int64_t window = 0,
    const Tensor& document_starts = {},
    const Tensor& seen_until = {});

/// Adds to what queries have found of some keys, in place, what they found of others. seen.out, in
/// the type of the part or float32, and seen.log_sum may be views of more queries'; nothing found
/// is a log_sum of -infinity.
void add_attention_part(const AttentionPart& seen, const AttentionPart& more);

/// The gradients that a part adds: `whole` is the output of all parts together, and its log_sum.
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

/// Puts sinks [H] (AttentionOptions) beside all the keys of a whole, which is written to: its
/// log_sum is then over them too, and attention_part_backward takes it as it is.
void add_sinks(const AttentionPart& whole, const Tensor& sinks);
/// Their gradient, of such a whole: each takes the share e^(sink - log_sum) of a query's weights.
Tensor sinks_gradient(const Tensor& out_gradient, const AttentionPart& whole, const Tensor& sinks);

}  // namespace lockstep::ops
