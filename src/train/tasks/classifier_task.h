// Training task of a classifier.
#pragma once

#include "config/core/config.h"
#include "model/model_config.h"
#include "objective/task.h"

namespace lockstep::train {

/// Returns the loss of a problem type.
objective::ObjectivePointer objective_of(
    model::ProblemType problem, const objective::ClassOptions& options);

/// Returns the task as determined by the configuration and the model, for commands that do not read
/// rows (`lockstep estimate`, `plan`, `verify`). If the labels depend on the rows, assumes two; if
/// their weights do, assumes unequal weights. For other models, returns language modeling.
objective::Task planned_task(const config::Config& config, const model::ModelConfig& model);

}  // namespace lockstep::train
