// Job description for the planner, from a configuration.
#pragma once

#include <cstdint>

#include "config/core/config.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// The facts of this program, of a model that is trained in this precision.
Software our_software(const model::ModelConfig& model, Precision precision);

/// Changes them to those of ranks that compute on CPUs like this one, in the type
/// of `training`.
void run_on_cpu(Software& software, const config::TrainingSection& training);

/// The job of `config` for `model` on `devices` ranks, of which so many share a machine. Throws
/// (config) where the sizes of `parallel` do not go with them.
Job planned_job(
    const config::Config& config,
    const model::ModelConfig& model,
    int64_t devices,
    int64_t devices_per_node);

}  // namespace lockstep::plan
