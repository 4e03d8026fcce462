// From the configuration of a user to the model that the planner knows, for estimate and plan.
#pragma once

#include "config/core/config.h"
#include "model/model_config.h"

namespace lockstep::cli {

/// The model that model.path or model.preset names. Throws (config, data).
model::ModelConfig planned_model(const config::Config& config);

}  // namespace lockstep::cli
