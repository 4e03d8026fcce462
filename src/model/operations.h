// What a model's matrix products cost, for the share of the processor's peak that training reaches.
#pragma once

#include <cstdint>

#include "model/model_config.h"

namespace lockstep::model {

/// Floating-point operations (a multiply and an add are two), on average for one token of a
/// sequence. An encoder-decoder has two sequences, a source and a target, taken to be of one
/// length: the average is over the tokens of both.
struct TokenOperations {
  double projections = 0;  // every matrix of the blocks, forward
  double attention = 0;    // scores and their product with the values, visible pairs only, forward
  double head = 0;         // the product with the vocabulary, forward
  double forward() const { return projections + attention + head; }
  /// Forward and backward: the backward pass does each product twice. Recomputation is not counted.
  double training() const { return 3 * forward(); }
};

/// For sequences of `length` tokens. Embedding look-ups, norms and activations are not matrix
/// products.
TokenOperations operations_per_token(const ModelConfig& config, int64_t length);
/// The part of one block.
TokenOperations layer_operations(const ModelConfig& config, int64_t layer, int64_t length);

}  // namespace lockstep::model
