// Model description of a configuration for the planner.
#pragma once

#include "config/core/config.h"
#include "model/model_config.h"

namespace lockstep::plan {

/// Returns the head of a classifier from the configuration and the model. If the labels are only
/// known from the rows, assumes two.
model::HeadSpec planned_head(const config::Config& config, const model::ModelConfig& model);

/// Returns the model of model.path or model.preset with the head of the task. Throws Error (config,
/// data).
model::ModelConfig planned_model(const config::Config& config);

}  // namespace lockstep::plan
