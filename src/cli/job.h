// From the configuration of a user to the job that the planner knows, for estimate and plan.
#pragma once

#include <cstdint>
#include <string>

#include "config/resolve.h"
#include "plan/cluster.h"
#include "plan/job.h"

namespace lockstep::cli {

/// The model that model.path or model.preset names. Throws (config, data).
model::ModelConfig planned_model(const config::Config& config);

/// The job of a configuration on `devices` devices. Throws (config) where the mesh does not
/// multiply to them.
plan::Job planned_job(const config::Config& config, int64_t devices);

/// What our own trainer does: bfloat16 weights with float32 masters and moments, or all in float32.
plan::Software our_software(plan::Precision precision);

}  // namespace lockstep::cli
