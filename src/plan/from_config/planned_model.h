// From the configuration of a user to the model that the planner knows.
#pragma once

#include "config/core/config.h"
#include "model/model_config.h"

namespace lockstep::plan {

/// The head of a classifier as far as the configuration and the model tell of it: where labels are
/// known from rows alone, two of them.
model::HeadSpec planned_head(const config::Config& config, const model::ModelConfig& model);

/// The model that model.path or model.preset names, with the task's head. Throws (config, data).
model::ModelConfig planned_model(const config::Config& config);

}  // namespace lockstep::plan
