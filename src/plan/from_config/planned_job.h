// Conversion of a configuration to a job description for the planner.
#pragma once

#include <cstdint>

#include "config/core/config.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Returns the Software properties of Lockstep for a model trained in this precision.
Software our_software(const model::ModelConfig& model, Precision precision);

/// Changes the properties to those of ranks on CPUs of this machine, with the data type set in
/// `training`.
void run_on_cpu(Software& software, const config::TrainingSection& training);

/// Returns the job that trains `model` with `config` on `devices` ranks, with the given number of
/// ranks per node. Throws Error (config) if the sizes of `parallel` do not match.
Job planned_job(
    const config::Config& config,
    const model::ModelConfig& model,
    int64_t devices,
    int64_t devices_per_node);

}  // namespace lockstep::plan
