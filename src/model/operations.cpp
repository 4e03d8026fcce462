// Counts the floating-point operations of a model.
#include "model/operations.h"

#include <algorithm>

#include "model/description.h"

namespace lockstep::model {
namespace {

/// Returns the mean number of positions that a token of a sequence attends to.
double visible(int64_t length, int64_t window) {
  const auto all = static_cast<double>(length);
  if (window <= 0 || window >= length) {
    return (all + 1) / 2;
  }
  const auto w = static_cast<double>(window);
  // The first w tokens attend to 1, 2, ..., w tokens, all others to w tokens.
  return (w * (w + 1) / 2 + (all - w) * w) / all;
}

/// Returns the fraction of tokens that a stack of blocks processes.
double share_of_stack(const ModelConfig& config) {
  return config.is_encoder_decoder() ? 0.5 : 1;
}

/// Returns the number of matrix elements of a block that are multiplied per token.
double active_weights(const ModelConfig& config, int64_t layer) {
  double weights = 0, of_an_expert = 0;
  for (const LayerSpec& each : block_layers(config, layer)) {
    const auto elements = static_cast<double>(each.weight().elements());
    const bool is_matrix = each.kind == LayerKind::kLinear || each.kind == LayerKind::kRouter;
    weights += is_matrix && each.expert < 0 ? elements : 0;
    of_an_expert += each.expert == 0 ? elements : 0;
  }
  return weights + static_cast<double>(config.experts.per_token) * of_an_expert;
}

}  // namespace

TokenOperations layer_operations(const ModelConfig& config, int64_t layer, int64_t length) {
  length = std::max<int64_t>(length, 1);
  const auto queries = static_cast<double>(config.heads * config.head_dim);
  const bool encodes = layer < config.encoder_layers;
  const bool reads_source = config.is_encoder_decoder() && !encodes;
  const auto all = static_cast<double>(length);
  const double seen =
      (encodes || config.bidirectional
           ? all
           : visible(length, config.sliding_windows.at(static_cast<size_t>(layer)))) +
      (reads_source ? all : 0);
  const double weights = active_weights(config, layer);
  TokenOperations result;
  result.projections = 2 * weights * share_of_stack(config);
  result.attention = 2 * 2 * queries * seen * share_of_stack(config);
  return result;
}

TokenOperations operations_per_token(const ModelConfig& config, int64_t length) {
  TokenOperations result;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const TokenOperations one = layer_operations(config, layer, length);
    result.projections += one.projections;
    result.attention += one.attention;
  }
  result.head = 2 * static_cast<double>(config.hidden_size) *
                static_cast<double>(config.head_rows()) * share_of_stack(config);
  return result;
}

}  // namespace lockstep::model
