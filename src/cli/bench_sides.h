// What `lockstep bench` measures: a side is one way to train, run by processes of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/machine/rank_context.h"

namespace lockstep::cli {

/// The model, a GPT-2 with random weights, and what is measured of it.
struct BenchOptions {
  int64_t ranks = 2;
  int64_t steps = 10, warm = 2;
  int64_t layers = 4, width = 256, vocabulary = 50257, length = 256, rows = 4;  // rows a rank
  bool float32 = false;                                                         // else bfloat16
  bool use_cpu = false;
};

/// Of one plan: medians over the steps.
struct BenchFigures {
  std::string name;
  double step_seconds = 0;
  int64_t state_bytes = 0;  // of rank 0, between two steps; 0: not known
  double last_loss = 0;     // of a token: the same on every side, but for rounding
};

/// One process for all ranks, in the form that replicates the module in every step.
BenchFigures run_replicating(const BenchOptions& options);
/// Ranks as threads of this process.
BenchFigures run_threads(const BenchOptions& options);
/// This rank of processes. Every rank must call; the figures are rank 0's.
BenchFigures run_process(const BenchOptions& options, train::RankContext& rank_context);
/// ZeRO's stages with and without offload, in turns. As run_process.
std::vector<BenchFigures> run_stages(const BenchOptions& options, train::RankContext& rank_context);

}  // namespace lockstep::cli
