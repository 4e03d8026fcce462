// Device mesh of the section `parallel`.
#pragma once

#include "config/core/config.h"
#include "mesh/mesh.h"

namespace lockstep::config {

/// Returns the mesh of the section `parallel` for a world size. Throws Error (config) with the
/// sizes if their product is not `ranks`.
mesh::Mesh mesh_of(const ParallelSection& parallel, int ranks);

/// Returns the number of ranks that shard a state: parallel.shard_ranks; for -1, the ranks of a
/// machine; 0: all.
int shard_ranks_of(const ParallelSection& parallel, int ranks, int ranks_of_machine);

}  // namespace lockstep::config
