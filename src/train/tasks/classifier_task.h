// Training task of a classifier.
#pragma once

#include "config/core/config.h"
#include "model/model_config.h"
#include "objective/task.h"

namespace lockstep::train {

/// Returns the loss of a problem type.
objective::ObjectivePointer objective_of(
    model::ProblemType problem, const objective::ClassOptions& options);

/// Returns the task that the configuration and the model determine, for commands that do not read
/// rows (`lockstep estimate`, `plan`, `verify`). Assumes two labels if the labels depend on the
/// rows, and unequal class weights if the weights depend on the rows. Returns language modeling if
/// the run does not classify rows.
objective::Task planned_task(const config::Config& config, const model::ModelConfig& model);

}  // namespace lockstep::train
