// From the configuration to what parallelize() reads.
#pragma once

#include <c10/core/ScalarType.h>

#include "config/core/config.h"
#include "mesh/mesh.h"
#include "parallel/plan.h"

namespace lockstep::train {

/// The mesh of section `parallel` on so many ranks. Error (config) that lists those that multiply
/// to them.
mesh::Mesh mesh_of(const config::ParallelSection& parallel, int ranks);

/// What of the plan does not fit sequences of `length` tokens: Error (config).
void check_plan(const config::ParallelSection& parallel, int64_t length);

/// Ranks that share one state: parallel.shard_ranks, or of -1 those of one machine. 0: all.
int shard_ranks_of(const config::ParallelSection& parallel, int ranks, int ranks_of_machine);

/// The type in which the model is computed.
at::ScalarType compute_type(const config::TrainingSection& training);

/// What does not depend on the ranks there are.
parallel::Plan plan_of(const config::Config& config);

}  // namespace lockstep::train
