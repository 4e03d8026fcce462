// Device mesh described by the section `parallel`.
#pragma once

#include "config/core/config.h"
#include "mesh/mesh.h"

namespace lockstep::config {

/// Returns the mesh for a world size of `ranks`. Throws Error (config) with the sizes if their
/// product is not `ranks`.
mesh::Mesh mesh_of(const ParallelSection& parallel, int ranks);

/// Returns the number of ranks across which state is sharded: parallel.shard_ranks; if that is -1,
/// the ranks of one machine; if 0, all ranks.
int shard_ranks_of(const ParallelSection& parallel, int ranks, int ranks_of_machine);

}  // namespace lockstep::config
