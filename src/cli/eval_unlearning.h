// `lockstep eval` of an unlearned model.
#pragma once

#include "config/resolve.h"
#include "train/machine/rank_context.h"

namespace lockstep::cli {

/// Measures unlearning.metrics and writes TOFU_EVAL.json and TOFU_SUMMARY.json after every metric,
/// to --output or otherwise to training.output_dir. Every rank must call. Returns the exit code.
int evaluate_unlearning(const config::Resolution& resolution, train::RankContext& rank_context);

}  // namespace lockstep::cli
