// Floating-point operation counts of matrix products, for MFU.
#pragma once

#include <cstdint>

#include "model/model_config.h"

namespace lockstep::model {

/// Floating-point operations per token, averaged over a sequence. A multiply-add counts as two. For
/// an encoder-decoder, the average is over source and target tokens, with equal lengths assumed.
struct TokenOperations {
  double projections = 0;  // block matrices, forward
  double attention = 0;    // scores and their product with values, only visible pairs, forward
  double head = 0;         // vocabulary projection, forward
  double forward() const { return projections + attention + head; }
  /// Returns the operations of the forward and backward passes, without recomputation. The backward
  /// pass computes each product twice.
  double training() const { return 3 * forward(); }
};

/// Returns the counts for sequences of `length` tokens. Excludes embedding look-ups, norms and
/// activations.
TokenOperations operations_per_token(const ModelConfig& config, int64_t length);
/// Returns the counts of one block.
TokenOperations layer_operations(const ModelConfig& config, int64_t layer, int64_t length);

}  // namespace lockstep::model
