// Line about an evaluation, for the terminal, the log and `lockstep ctl`.
#pragma once

#include <string>

#include "train/job.h"

namespace lockstep::train {

/// Prints the result of an evaluation of the run's model and returns the line. `prefix` and
/// `suffix` are those of the metric names. Returns "" on ranks other than 0.
std::string print_evaluation(
    const Job& job,
    const Evaluation& result,
    const std::string& prefix,
    bool is_best = false,
    const std::string& suffix = "");

}  // namespace lockstep::train
