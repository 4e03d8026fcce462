// Job description of a configuration for the planner.
#pragma once

#include <cstdint>

#include "config/core/config.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Returns the properties of Lockstep for a model trained in this precision.
Software our_software(const model::ModelConfig& model, Precision precision);

/// Changes the properties to those of ranks that run on CPUs like this machine's, in the type of
/// `training`.
void run_on_cpu(Software& software, const config::TrainingSection& training);

/// Returns the job of `config` for `model` on `devices` ranks, with the given number per node.
/// Throws Error (config) if the sizes of `parallel` do not match.
Job planned_job(
    const config::Config& config,
    const model::ModelConfig& model,
    int64_t devices,
    int64_t devices_per_node);

}  // namespace lockstep::plan
