// Checks of `lockstep selftest`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/model_spec.h"
#include "train/machine/rank_context.h"

namespace lockstep::cli {

struct Check {
  std::string group;  // for example "operations"
  std::string name;   // for example "attention, bfloat16"
  bool passed = true;
  std::string detail;         // for example "error 3e-7"; after a failure, the rank and its result
  double bytes_a_second = 0;  // measured bandwidth; 0: none
  /// Group of checks ("all-reduce") of which only the slowest is printed. Empty: the check is
  /// always printed.
  std::string kind = {};
};

/// Runs `body` on every rank. It returns a detail or throws. The result is the same on all ranks.
Check check_on_all_ranks(
    train::RankContext& rank_context,
    std::string group,
    std::string name,
    const std::function<std::string()>& body);

/// Returns the specification of a small Llama. Its parameters are the same on every machine.
parallel::ModelSpec small_model(const train::RankContext& rank_context);

/// Compares the forward and backward pass of each operation on the rank's device with float64 on
/// the CPU. All these functions must be called on every rank, and return the results of all ranks.
std::vector<Check> check_operations(train::RankContext& rank_context);
/// Checks each collective and point-to-point messages, and measures their bandwidth. The checks run
/// over all ranks and, if there are few ranks, between every pair of ranks.
std::vector<Check> check_collectives(train::RankContext& rank_context);
/// Compares two steps of a small model with each kind of parallelism with those on one rank.
std::vector<Check> check_plans(train::RankContext& rank_context);
/// Compares steps captured as CUDA graphs with ordinary steps.
std::vector<Check> check_graphs(train::RankContext& rank_context);
/// Saves the state of a sharded model during training and reads it back.
std::vector<Check> check_checkpoint(train::RankContext& rank_context);

}  // namespace lockstep::cli
