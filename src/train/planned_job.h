// What the trainer is going to run, in the planner's words.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "config/core/config.h"
#include "plan/workload/job.h"

namespace lockstep::train {

/// The facts of this program, of a model that is trained in this precision.
plan::Software our_software(const model::ModelConfig& model, plan::Precision precision);

/// Changes them to those of ranks that compute on CPUs like this one, in this type.
void run_on_cpu(plan::Software& software, c10::ScalarType type);

/// The job of `config` for `model` on `devices` ranks, of which so many share a machine. Throws
/// (config) where the sizes of `parallel` do not go with them.
plan::Job planned_job(
    const config::Config& config,
    const model::ModelConfig& model,
    int64_t devices,
    int64_t devices_per_node);

}  // namespace lockstep::train
