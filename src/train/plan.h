// From the configuration to what parallelize() reads.
#pragma once

#include <c10/core/ScalarType.h>

#include "config/core/config.h"
#include "config/mesh.h"
#include "model/model_config.h"
#include "parallel/plan.h"

namespace lockstep::train {

using config::mesh_of;
using config::shard_ranks_of;

/// What of the plan does not fit sequences of `length` tokens: Error (config).
void check_plan(const config::ParallelSection& parallel, int64_t length);

/// Error (config) where keys of mixtures of experts do not fit the model.
void check_mixture(const config::Config& config, const model::ModelConfig& model);

/// The type in which the model is computed.
at::ScalarType compute_type(const config::TrainingSection& training);

/// What does not depend on the ranks there are.
parallel::Plan plan_of(const config::Config& config);

}  // namespace lockstep::train
