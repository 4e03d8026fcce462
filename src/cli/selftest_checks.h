// The checks of `lockstep selftest`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/model_spec.h"
#include "train/machine/rank_context.h"

namespace lockstep::cli {

struct Check {
  std::string group;  // "operations"
  std::string name;   // "attention, bfloat16"
  bool passed = true;
  std::string detail;         // "error 3e-7", and on failure the rank and what it found
  double bytes_a_second = 0;  // of those that measure it
  /// What the slowest of many is told of, "all-reduce"; empty: each is told.
  std::string kind = {};
};

/// Runs `body` on every rank, which returns a detail or throws, and makes the ranks agree.
Check check_on_all_ranks(
    train::RankContext& rank_context,
    std::string group,
    std::string name,
    const std::function<std::string()>& body);

/// A small Llama, of parameters that are the same everywhere.
parallel::ModelSpec small_model(const train::RankContext& rank_context);

/// Each operation, forward and backward, on the rank's device, against float64 on the CPU. Every
/// rank must call all of these; the results are those of all ranks, on each.
std::vector<Check> check_operations(train::RankContext& rank_context);
/// Each collective and messages, of all ranks together and of each two, with their speeds; where
/// there are many ranks, of all alone.
std::vector<Check> check_collectives(train::RankContext& rank_context);
/// Two steps of a small model under each kind of parallelism, against one rank.
std::vector<Check> check_plans(train::RankContext& rank_context);
/// Steps of fixed shapes as they are captured in CUDA graphs, against the plain ones.
std::vector<Check> check_graphs(train::RankContext& rank_context);
/// The state of a sharded model, saved while it is trained on, and read again.
std::vector<Check> check_checkpoint(train::RankContext& rank_context);

}  // namespace lockstep::cli
