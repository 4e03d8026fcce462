// Converts the configuration to the inputs of parallelize().
#pragma once

#include <c10/core/ScalarType.h>

#include "config/core/config.h"
#include "config/mesh.h"
#include "model/model_config.h"
#include "parallel/plan.h"

namespace lockstep::train {

using config::mesh_of;
using config::shard_ranks_of;

/// Throws Error (config) if the plan does not support sequences of `length` tokens.
void check_plan(const config::ParallelSection& parallel, int64_t length);

/// Throws Error (config) if mixture-of-experts keys do not match the model.
void check_mixture(const config::Config& config, const model::ModelConfig& model);

/// Returns the model's compute type.
at::ScalarType compute_type(const config::TrainingSection& training);

/// Returns the parts of the plan that do not depend on the number of ranks.
parallel::Plan plan_of(const config::Config& config);

}  // namespace lockstep::train
