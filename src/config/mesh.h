// Device mesh from the section `parallel`.
#pragma once

#include "config/core/config.h"
#include "mesh/mesh.h"

namespace lockstep::config {

/// The mesh of section `parallel` on so many ranks. Error (config) that lists those that multiply
/// to them.
mesh::Mesh mesh_of(const ParallelSection& parallel, int ranks);

/// Ranks that share one state: parallel.shard_ranks, or of -1 those of one machine. 0: all.
int shard_ranks_of(const ParallelSection& parallel, int ranks, int ranks_of_machine);

}  // namespace lockstep::config
