// Distribution of attention heads over the ranks of a tensor group.
#pragma once

#include "mesh/cut.h"
#include "model/model_config.h"

namespace lockstep::parallel {

/// The heads of one rank: whole groups of query heads with their key-value heads or, if there are
/// fewer key-value heads than ranks, one replicated key-value head and a subset of its query heads.
/// Both ranges are contiguous. The number of query heads is a multiple of the number of key-value
/// heads.
struct HeadSplit {
  mesh::Range queries, key_values;
  int copies = 1;  // number of neighboring ranks that hold a replica of these key-value heads
  int copy = 0;    // index of this rank's replica
};

/// Throws Error (kConfig), with a suggestion, if `ranks` exceeds the number of query heads.
HeadSplit split_heads(const model::ModelConfig& config, int rank, int ranks);

}  // namespace lockstep::parallel
