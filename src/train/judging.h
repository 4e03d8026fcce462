// How a classifier's answers are judged, as a run's configuration says.
#pragma once

#include "config/core/config.h"
#include "model/head.h"
#include "train/judgement/judgement.h"

namespace lockstep::train {

/// Error (kConfig): smoothing, weights or thresholds that the problem does not have.
void check_problem(const config::Config& config, const model::HeadSpec& head, bool has_validation);

/// Puts task.metrics and task.positive_label into `options`. Error (kConfig): a metric that the
/// problem does not have, with the nearest name; a label that is none of two.
void take_judging(
    const config::TaskSection& task, const model::HeadSpec& head, JudgeOptions& options);

}  // namespace lockstep::train
