// How attention heads are dealt to the ranks of a tensor group.
#pragma once

#include "mesh/cut.h"
#include "model/model_config.h"

namespace lockstep::parallel {

/// The heads of one rank: whole groups of queries with their key-value heads, or, where there are
/// fewer key-value heads than ranks, one key-value head and a part of its queries. Both ranges are
/// of neighbours, and the queries are a multiple of the key-value heads.
struct HeadSplit {
  mesh::Range queries, key_values;
  int copies = 1;  // ranks that hold these key-value heads; they are neighbours
  int copy = 0;    // which of them this one is
};

/// Throws Error (kConfig) that says what would work where `ranks` is more than the query heads.
HeadSplit split_heads(const model::ModelConfig& config, int rank, int ranks);

}  // namespace lockstep::parallel
