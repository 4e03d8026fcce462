// Parameter counts of a model description.
#pragma once

#include <array>
#include <cstddef>

#include "model/model_config.h"
#include "plan/workload/blocks.h"

namespace lockstep::plan {

/// Parameters of one block of each kind, of the token and position embeddings, and of the head
/// (only its norm if tied).
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

/// Sizes of the linear layers of a block.
struct LinearSizes {
  double own = 0;        // weight elements applied to the block's own stream
  double active = 0;     // those of them used per token
  double experts = 0;    // those of them in experts
  double of_source = 0;  // weight elements applied to the encoder output
  double sides =
      0;  // inputs plus outputs of all layers: adapters of rank r have r times as many parameters
  // Outputs per token of all layers: of column-parallel layers, of layers with hidden-size outputs,
  // and of layers applied to the encoder output.
  double cut_outputs = 0, whole_outputs = 0, source_outputs = 0;
};

struct ModelSizes {
  ParameterCounts parameters;
  std::array<LinearSizes, kBlockKinds> linears{};
  bool packs_heads = false;  // queries, keys and values are one product
  /// Norms of a decoder block over the hidden states in addition to one per sublayer: those after
  /// sublayers that also have one before them.
  double further_norms = 0;
  const LinearSizes& linears_of(BlockKind kind) const { return linears[static_cast<size_t>(kind)]; }
};

/// Returns the sizes of a model, cached for the thread's last model because a search asks thousands
/// of times. Valid until the thread asks for another model.
const ModelSizes& sizes_of(const model::ModelConfig& model);

}  // namespace lockstep::plan
