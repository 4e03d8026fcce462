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
  std::string detail;         // for example "error 3e-7"; on failure the rank and its result
  double bytes_a_second = 0;  // measured bandwidth, bytes/s; 0 if none
  /// Only the slowest check of a kind ("all-reduce") is printed; empty: each check is printed.
  std::string kind = {};
};

/// Runs `body`, which returns a detail or throws, on every rank, and makes the ranks agree on the
/// result.
Check check_on_all_ranks(
    train::RankContext& rank_context,
    std::string group,
    std::string name,
    const std::function<std::string()>& body);

/// Returns a small Llama with the same parameters on every machine.
parallel::ModelSpec small_model(const train::RankContext& rank_context);

/// Compares each operation, forward and backward, on the rank's device with float64 on the CPU.
/// Every rank must call all of these functions; every rank gets the results of all ranks.
std::vector<Check> check_operations(train::RankContext& rank_context);
/// Checks each collective and point-to-point messages, over all ranks and (for few ranks) between
/// every pair, and measures their bandwidth.
std::vector<Check> check_collectives(train::RankContext& rank_context);
/// Compares two steps of a small model under each kind of parallelism with one rank.
std::vector<Check> check_plans(train::RankContext& rank_context);
/// Compares steps captured as CUDA graphs with plain ones.
std::vector<Check> check_graphs(train::RankContext& rank_context);
/// Saves the state of a sharded model while it is trained, and reads it back.
std::vector<Check> check_checkpoint(train::RankContext& rank_context);

}  // namespace lockstep::cli
