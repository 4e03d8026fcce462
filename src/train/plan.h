// From the configuration to what parallelize() reads.
#pragma once

#include <c10/core/ScalarType.h>

#include "config/core/config.h"
#include "config/mesh.h"
#include "parallel/plan.h"

namespace lockstep::train {

using config::mesh_of;
using config::shard_ranks_of;

/// What of the plan does not fit sequences of `length` tokens: Error (config).
void check_plan(const config::ParallelSection& parallel, int64_t length);

/// The type in which the model is computed.
at::ScalarType compute_type(const config::TrainingSection& training);

/// What does not depend on the ranks there are.
parallel::Plan plan_of(const config::Config& config);

}  // namespace lockstep::train
