// Parameter counts of a model description.
#pragma once

#include <array>
#include <cstddef>

#include "model/model_config.h"
#include "plan/workload/blocks.h"

namespace lockstep::plan {

/// Parameters of one block of each kind, of the embedding of tokens and of positions, and of the
/// head (its norm alone where it is tied).
struct ParameterCounts {
  BlockCounts blocks;  // of the whole model
  std::array<double, kBlockKinds> block{};
  double embedding = 0;
  double positions = 0;
  double head = 0;
  double of(BlockKind kind) const { return block[static_cast<size_t>(kind)]; }
  double of(const BlockCounts& some) const;
  double largest_block() const;
  double total() const { return of(blocks) + embedding + positions + head; }
};

/// Of the linears of a block.
struct LinearSizes {
  double own = 0;        // elements of the weights that multiply the block's own stream
  double active = 0;     // those of them that a token is multiplied with
  double experts = 0;    // likewise: those of experts
  double of_source = 0;  // elements of those that multiply what the encoder gives
  double sides = 0;  // inputs and outputs together, of all of them: a low-rank product of rank r
                     // beside each has r times as many parameters
  // Outputs that a token has of all of them: those that tensor parallelism cuts, those of the
  // hidden size, and of what the encoder gives.
  double cut_outputs = 0, whole_outputs = 0, source_outputs = 0;
};

struct ModelSizes {
  ParameterCounts parameters;
  std::array<LinearSizes, kBlockKinds> linears{};
  bool packs_heads = false;  // whether queries, keys and values are one product
  /// Norms of a decoder's block over the hidden states, beyond one for each sublayer: those behind
  /// sublayers that have one before them too.
  double further_norms = 0;
  const LinearSizes& linears_of(BlockKind kind) const { return linears[static_cast<size_t>(kind)]; }
};

/// Kept for the thread's last model: a search asks thousands of times for one. Valid until the
/// thread asks of another.
const ModelSizes& sizes_of(const model::ModelConfig& model);

}  // namespace lockstep::plan
