// Blockwise attention. The softmax over all keys is accumulated block by block (Liu et al., "Ring
// Attention with Blockwise Transformers", 2023, section 3; running maximum and sum from Milakov and
// Gimelshein, 2018).
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

using at::Tensor;

/// Returns the accumulation type of scores: float64 for float64 inputs, float32 otherwise.
inline at::ScalarType sum_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

struct BlockOptions {
  bool causal = true;  // false: queries also attend to later keys of their document
  double scale = 1;
  double cap = 0;      // logit soft cap, as in ops::AttentionOptions
  int64_t window = 0;  // query i attends to key j if i - window < j <= i; 0: to every j <= i
  bool upcast = false;
  double dropout = 0;
  Tensor dropout_keys;  // if dropout > 0: dropout keys per row or per token (ops/dropout.h)
  int64_t first_head = 0, total_heads = 0, whole_length = 0;  // global indices for dropout
  /// [B, whole_length]: first key that each token attends to, if rows hold several documents;
  /// undefined: 0 for every token.
  Tensor document_starts;
};

/// Position of a block in the sequence.
struct BlockPlace {
  int64_t first_query = 0, first_key = 0;
};

/// Running attention state of the queries. Values are weighted by e^(score - peak) and accumulated
/// in float32 (float64 for float64 queries).
struct SeenSoFar {
  Tensor sum;     // [B, H, T, D]: weighted sum of the values
  Tensor weight;  // [B, H, T]: sum of the weights e^(score - peak)
  Tensor peak;    // [B, H, T]: the largest score

  static SeenSoFar nothing(const Tensor& query);
  SeenSoFar narrow(int64_t begin, int64_t count) const;  // views of a range of queries
  Tensor output() const;   // [B, H, T, D]; zero for queries that attend to no key
  Tensor log_sum() const;  // [B, H, T]: logarithm of the sum of e^score over the processed keys
};

/// Adds keys, given their scores [B, H, T, S], which are overwritten. `weigh` must return the
/// weighted sum of the values [B, H, T, D].
void see_scores(
    SeenSoFar& seen,
    const Tensor& scores,
    const std::function<Tensor(const Tensor& weights)>& weigh);

/// Adds a block of keys to the attention state. query [B, H, T, D], key and value [B, Hkv, S, D]; H
/// is a multiple of Hkv. Blocks that no query attends to are skipped.
void see_block(
    SeenSoFar& seen,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const BlockPlace& place,
    const BlockOptions& options);

/// Gradients accumulated over blocks, in the type of SeenSoFar.
struct BlockGradients {
  Tensor query;       // [B, H, T, D]
  Tensor key, value;  // [B, Hkv, S, D]
};

/// Adds a block's contribution to the gradients. `log_sum` [B, H, T] covers all keys. `dot` [B, H,
/// T] is the sum over D of the output times its gradient.
void see_block_backward(
    BlockGradients& gradients,
    const Tensor& output_gradient,
    const Tensor& log_sum,
    const Tensor& dot,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const BlockPlace& place,
    const BlockOptions& options);

}  // namespace lockstep::parallel
