// `lockstep eval` of a model that was to forget.
#pragma once

#include "config/resolve.h"
#include "train/machine/rank_context.h"

namespace lockstep::cli {

/// Measures unlearning.metrics and writes TOFU_EVAL.json and TOFU_SUMMARY.json to --output, else to
/// training.output_dir, after every metric. Every rank must call. Returns the exit code.
int evaluate_unlearning(const config::Resolution& resolution, train::RankContext& rank_context);

}  // namespace lockstep::cli
