// Blockwise attention: the softmax over all keys is accumulated from blocks of keys (Liu et al.,
// "Ring Attention with Blockwise Transformers", 2023, section 3; running maximum and sum from
// Milakov and Gimelshein, 2018).
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

using at::Tensor;

/// Accumulation type of scores: float32, or float64 for float64.
inline at::ScalarType sum_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

struct BlockOptions {
  bool causal = true;  // false: a query also sees later keys of its own document
  double scale = 1;
  double cap = 0;      // logit soft cap, as in ops::AttentionOptions
  int64_t window = 0;  // query i sees key j if i - window < j <= i; 0: every j <= i
  bool upcast = false;
  double dropout = 0;
  Tensor dropout_keys;  // if dropout > 0: per row, or per token (ops/dropout.h)
  int64_t first_head = 0, total_heads = 0, whole_length = 0;  // for the indices of dropout
  /// [B, whole_length]: the first key visible to each token, if rows hold several documents;
  /// undefined: 0.
  Tensor document_starts;
};

/// Position of a block in the sequence.
struct BlockPlace {
  int64_t first_query = 0, first_key = 0;
};

/// Accumulated attention of the queries: sums weighted by e^(score - peak), in float32 (float64 for
/// float64 queries).
struct SeenSoFar {
  Tensor sum;     // [B, H, T, D]: weighted sum of the values
  Tensor weight;  // [B, H, T]: sum of the weights
  Tensor peak;    // [B, H, T]: the largest score

  static SeenSoFar nothing(const Tensor& query);
  SeenSoFar narrow(int64_t begin, int64_t count) const;  // views of some queries
  Tensor output() const;   // [B, H, T, D]; zero for queries that saw no key
  Tensor log_sum() const;  // [B, H, T]: of e^score over the keys seen
};

/// Adds keys by their scores [B, H, T, S], which are overwritten; `weigh` computes the weighted sum
/// of the values [B, H, T, D].
void see_scores(
    SeenSoFar& seen,
    const Tensor& scores,
    const std::function<Tensor(const Tensor& weights)>& weigh);

/// Adds a block of keys to the accumulated attention. query [B, H, T, D], key and value [B, Hkv, S,
/// D], H a multiple of Hkv. Blocks that no query sees cost nothing.
void see_block(
    SeenSoFar& seen,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const BlockPlace& place,
    const BlockOptions& options);

/// The gradients that a block adds, in the type of SeenSoFar.
struct BlockGradients {
  Tensor query;       // [B, H, T, D], accumulated
  Tensor key, value;  // [B, Hkv, S, D], accumulated
};

/// `log_sum` [B, H, T] over all keys; `dot` [B, H, T] = sum over D of output x its gradient.
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
