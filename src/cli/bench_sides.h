// Sides of `lockstep bench`: each trains in its own way, in its own processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/machine/rank_context.h"

namespace lockstep::cli {

/// The model (a GPT-2 with random weights) and the measurement.
struct BenchOptions {
  int64_t ranks = 2;
  int64_t steps = 10, warm = 2;
  int64_t layers = 4, width = 256, vocabulary = 50257, length = 256, rows = 4;  // rows per rank
  bool float32 = false;  // otherwise bfloat16
  bool use_cpu = false;
};

/// Measurements of one plan, medians over the steps.
struct BenchFigures {
  std::string name;
  double step_seconds = 0;
  int64_t state_bytes = 0;  // state of rank 0 between two steps; 0: unknown
  double last_loss = 0;     // per token; the same on every side up to rounding
};

/// Runs all ranks in one process that replicates the module in every step.
BenchFigures run_replicating(const BenchOptions& options);
/// Runs the ranks as threads of this process.
BenchFigures run_threads(const BenchOptions& options);
/// Runs this rank of several processes. Every rank must call; only rank 0's measurements are valid.
BenchFigures run_process(const BenchOptions& options, train::RankContext& rank_context);
/// Compares the ZeRO stages with and without offload, alternately. Every rank must call, as for
/// run_process.
std::vector<BenchFigures> run_stages(const BenchOptions& options, train::RankContext& rank_context);

}  // namespace lockstep::cli
