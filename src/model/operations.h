// Floating-point operation counts of matrix products, for MFU.
#pragma once

#include <cstdint>

#include "model/model_config.h"

namespace lockstep::model {

/// Floating-point operations (a multiply-add counts as two) per token, averaged over a sequence.
/// For an encoder-decoder, source and target are assumed to have equal lengths and the average is
/// over the tokens of both.
struct TokenOperations {
  double projections = 0;  // all matrices of the blocks, forward
  double attention = 0;    // scores and their product with the values, visible pairs only, forward
  double head = 0;         // vocabulary projection, forward
  double forward() const { return projections + attention + head; }
  /// Returns the operations of forward and backward: the backward pass computes each product twice.
  /// Excludes recomputation.
  double training() const { return 3 * forward(); }
};

/// Counts for sequences of `length` tokens. Embedding look-ups, norms and activations are excluded.
TokenOperations operations_per_token(const ModelConfig& config, int64_t length);
/// The count of one block.
TokenOperations layer_operations(const ModelConfig& config, int64_t layer, int64_t length);

}  // namespace lockstep::model
