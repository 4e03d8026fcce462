// Parameter counts of a model description.
#pragma once

#include <array>
#include <cstddef>

#include "model/model_config.h"
#include "plan/workload/blocks.h"

namespace lockstep::plan {

/// Parameter counts of one block of each kind, of token and position embeddings, and of the head
/// (only its norm if tied).
struct ParameterCounts {
  BlockCounts blocks;  // block counts of the whole model
  std::array<double, kBlockKinds> block{};
  double embedding = 0;
  double positions = 0;
  double head = 0;
  double of(BlockKind kind) const { return block[static_cast<size_t>(kind)]; }
  double of(const BlockCounts& some) const;
  double largest_block() const;
  double total() const { return of(blocks) + embedding + positions + head; }
};

/// Sizes of the linear layers of a block.
struct LinearSizes {
  double own = 0;        // weight elements applied to the block's own stream
  double active = 0;     // weight elements in `own` that are used per token
  double experts = 0;    // weight elements in `own` that belong to experts
  double of_source = 0;  // weight elements applied to the encoder output
  double sides =
      0;  // inputs plus outputs of all layers; adapters of rank r have r times as many parameters
  // Outputs per token: of column-parallel layers, of layers with hidden-size outputs, and of layers
  // applied to the encoder output.
  double cut_outputs = 0, whole_outputs = 0, source_outputs = 0;
};

struct ModelSizes {
  ParameterCounts parameters;
  std::array<LinearSizes, kBlockKinds> linears{};
  bool packs_heads = false;  // queries, keys and values are computed by one product
  /// Additional norms over hidden states in a decoder block, beyond one per sublayer: norms after
  /// sublayers that also have a norm before them.
  double further_norms = 0;
  const LinearSizes& linears_of(BlockKind kind) const { return linears[static_cast<size_t>(kind)]; }
};

/// Returns the sizes of a model. The last model of each thread is cached because a search asks
/// thousands of times. The reference is valid until the thread passes another model.
const ModelSizes& sizes_of(const model::ModelConfig& model);

}  // namespace lockstep::plan
