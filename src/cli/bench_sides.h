// Sides of a comparison by `lockstep bench`. Each side trains with its own method, in its own
// processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/machine/rank_context.h"

namespace lockstep::cli {

/// Model (a GPT-2 with random weights) and settings of the measurement.
struct BenchOptions {
  int64_t ranks = 2;
  int64_t steps = 10, warm = 2;
  int64_t layers = 4, width = 256, vocabulary = 50257, length = 256, rows = 4;  // rows per rank
  bool float32 = false;  // otherwise bfloat16
  bool use_cpu = false;
};

/// Results for one plan: medians over the steps.
struct BenchFigures {
  std::string name;
  double step_seconds = 0;
  int64_t state_bytes = 0;  // state of rank 0 between two steps; 0: unknown
  double last_loss = 0;     // per token; the same for every side except for rounding
};

/// Runs all ranks in one process, which replicates the module in every step.
BenchFigures run_replicating(const BenchOptions& options);
/// Runs the ranks as threads of this process.
BenchFigures run_threads(const BenchOptions& options);
/// Runs this rank if each rank is a process. Must be called on every rank. Only rank 0's result is
/// valid.
BenchFigures run_process(const BenchOptions& options, train::RankContext& rank_context);
/// Compares the ZeRO stages with and without offload; their steps are run alternately. Must be
/// called on every rank. Only rank 0's result is valid.
std::vector<BenchFigures> run_stages(const BenchOptions& options, train::RankContext& rank_context);

}  // namespace lockstep::cli
