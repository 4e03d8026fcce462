// Metric and threshold options of a classifier, read from the configuration.
#pragma once

#include "config/core/config.h"
#include "model/head.h"
#include "train/judgement/judgement.h"

namespace lockstep::train {

/// Throws Error (kConfig) if the problem type does not support the configured smoothing, weights or
/// thresholds.
void check_problem(const config::Config& config, const model::HeadSpec& head, bool has_validation);

/// Copies task.metrics and task.positive_label to `options`. Throws Error (kConfig) if the problem
/// type does not have a metric (the error suggests the nearest name), or if the positive label is
/// not one of two labels.
void take_judging(
    const config::TaskSection& task, const model::HeadSpec& head, JudgeOptions& options);

}  // namespace lockstep::train
