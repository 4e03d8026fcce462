// Grid of plans that a search enumerates.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/machines/cluster.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Request of a search; fields that are set are not searched.
struct SearchRequest {
  Job base;  // model, sequence length, global batch, precision and software
  Cluster cluster;
  std::optional<int> data, tensor, pipeline, context, zero_stage;
  std::optional<int> expert;  // expert-parallel size
  std::optional<int>
      shard_ranks;  // 0: all ranks shard a state; not set: all ranks, or those of a node
  std::optional<int64_t> micro_batch, micro_batches;
  std::optional<bool> sequence_parallel;  // not set: used with tensor parallelism
  std::optional<Recompute> recompute;
  std::optional<Offload> offload;
  std::optional<schedule::Kind> schedule;
  std::optional<int> virtual_stages;
  std::vector<int64_t>
      split;  // layers per stage, for pipelines with that number of stages; empty: searched
  size_t best = 5;
};

struct GridVisitor {
  std::function<void(const Job&)> plan;
  /// Called with a kind of plans that is not in the grid and the reason; may repeat.
  std::function<void(const std::string& what, const std::string& why)> refuse;
};

/// Returns the recompute settings of the grid, by increasing savings. With dropout inside the MLP
/// there is no selective recomputation.
std::vector<Recompute> recompute_choices(const model::ModelConfig& model);

/// Calls visitor.plan for every plan of the grid, in a deterministic order: parallel sizes that
/// divide the devices (tensor within a node, context with at least 1024 tokens per rank, pipeline
/// up to the number of layers), micro-batches of up to 64 sequences that divide a data rank's share
/// of the global batch, ZeRO stages, shard groups, schedules with 1, 2, 4 and 8 stages per rank,
/// recomputation, offloading, and experts on each rank or distributed over the largest divisor
/// within a node. Every plan has exactly the global batch.
void visit_grid(const SearchRequest& request, const GridVisitor& visitor);

}  // namespace lockstep::plan
