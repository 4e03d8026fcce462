// Attention with an additive score bias, computed with explicit scores.
#include "ops/biased_attention.h"

#include <limits>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/dropout.h"
#include "ops/products.h"

namespace lockstep::ops {

Tensor biased_attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& bias,
    const Tensor& visible,
    const BiasedAttentionOptions& options) {
  const bool fits = query.dim() == 4 && key.dim() == 4 && key.sizes() == value.sizes() &&
                    query.size(0) == key.size(0) && query.size(1) == key.size(1) &&
                    query.size(3) == key.size(3);
  if (!fits) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "invalid biased attention inputs: queries {}, keys {}, values {}",
            fmt::join(query.sizes(), "x"),
            fmt::join(key.sizes(), "x"),
            fmt::join(value.sizes(), "x")));
  }
  const auto type = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Tensor scores = matrix_products(query, key.transpose(2, 3)).to(type);  // [B, H, T, S]
  if (options.scale != 1) {
    scores = scores * options.scale;
  }
  if (bias.defined()) {
    scores = scores + bias.to(type);
  }
  if (visible.defined()) {
    // Finite instead of -infinity, so that the softmax and its gradient are finite if no key is
    // visible.
    scores = scores.masked_fill(visible.logical_not(), std::numeric_limits<float>::lowest());
  }
  const Tensor probabilities = at::softmax(scores, -1).to(query.scalar_type());
  return matrix_products(biased_attention_dropout(probabilities, options, 0, 0), value);
}

Tensor biased_attention_dropout(
    const Tensor& probabilities,
    const BiasedAttentionOptions& options,
    int64_t first_query,
    int64_t first_key) {
  if (options.dropout == 0) {
    return probabilities;
  }
  return dropout_of_probabilities(
      probabilities,
      options.dropout,
      options.dropout_keys,
      {options.first_head, first_query, first_key, options.total_heads});
}

}  // namespace lockstep::ops
