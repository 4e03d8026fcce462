// `lockstep eval` of an unlearned model.
#pragma once

#include "config/resolve.h"
#include "train/machine/rank_context.h"

namespace lockstep::cli {

/// Computes unlearning.metrics. Writes TOFU_EVAL.json and TOFU_SUMMARY.json after every metric, to
/// --output or, if it is not set, to training.output_dir. Returns the exit code. Must be called on
/// every rank.
int evaluate_unlearning(const config::Resolution& resolution, train::RankContext& rank_context);

}  // namespace lockstep::cli
