// What a classifier is trained for.
#pragma once

#include "config/core/config.h"
#include "model/model_config.h"
#include "objective/task.h"

namespace lockstep::train {

/// The loss of a classifier's problem.
objective::ObjectivePointer objective_of(
    model::ProblemType problem, const objective::ClassOptions& options);

/// The task as far as the configuration and the model tell of it, for what computes without rows
/// (`lockstep estimate`, `plan`, `verify`): where labels are known from rows alone, two of them;
/// where their weights are, unequal ones. Of other models than classifiers: language modelling.
objective::Task planned_task(const config::Config& config, const model::ModelConfig& model);

}  // namespace lockstep::train
