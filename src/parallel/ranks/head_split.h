// Distribution of attention heads over the ranks of a tensor group.
#pragma once

#include "mesh/cut.h"
#include "model/model_config.h"

namespace lockstep::parallel {

/// The heads of one rank: whole groups of queries with their key-value heads or, if there are fewer
/// key-value heads than ranks, one replicated key-value head and a subset of its queries. Both
/// ranges are contiguous, and the number of queries is a multiple of that of key-value heads.
struct HeadSplit {
  mesh::Range queries, key_values;
  int copies = 1;  // number of ranks with a replica of these key-value heads; they are neighbors
  int copy = 0;    // index of this rank's replica
};

/// Throws Error (kConfig), with a suggestion, if `ranks` exceeds the number of query heads.
HeadSplit split_heads(const model::ModelConfig& config, int rank, int ranks);

}  // namespace lockstep::parallel
