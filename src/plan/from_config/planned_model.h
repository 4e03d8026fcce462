// Conversion of a configuration to a model description for the planner.
#pragma once

#include "config/core/config.h"
#include "model/model_config.h"

namespace lockstep::plan {

/// Returns the classifier head given by the configuration and the model. Assumes two labels if the
/// labels can only be determined from the data.
model::HeadSpec planned_head(const config::Config& config, const model::ModelConfig& model);

/// Returns the description of model.path or model.preset with the head of the task. Throws Error
/// (config, data).
model::ModelConfig planned_model(const config::Config& config);

}  // namespace lockstep::plan
