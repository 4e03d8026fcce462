#include "model/operations.h"

#include <algorithm>

namespace lockstep::model {
namespace {

/// The positions that a token sees, on average over a sequence.
double visible(int64_t length, int64_t window) {
  const auto all = static_cast<double>(length);
  if (window <= 0 || window >= length) {
    return (all + 1) / 2;
  }
  const auto w = static_cast<double>(window);
  // The first w tokens see 1, 2, ..., w; the others w each.
  return (w * (w + 1) / 2 + (all - w) * w) / all;
}

}  // namespace

TokenOperations operations_per_token(const ModelConfig& config, int64_t length) {
  length = std::max<int64_t>(length, 1);
  const auto width = static_cast<double>(config.hidden_size);
  const auto inner = static_cast<double>(config.intermediate_size);
  const auto queries = static_cast<double>(config.heads * config.head_dim);
  const auto keys = static_cast<double>(config.kv_heads * config.head_dim);
  const double mlp_matrices = config.family == Family::kGpt2 ? 2 : 3;
  const double weights = width * (2 * queries + 2 * keys) + mlp_matrices * width * inner;
  TokenOperations result;
  result.projections = 2 * weights * static_cast<double>(config.layers);
  for (const int64_t window : config.sliding_windows) {
    result.attention += 2 * 2 * queries * visible(length, window);
  }
  result.head = 2 * width * static_cast<double>(config.vocab_size);
  return result;
}

}  // namespace lockstep::model
