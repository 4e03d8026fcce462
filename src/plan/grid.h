// Grid of plans enumerated by a search.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/machines/cluster.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Search request. Fields that are set are fixed; all others are searched.
struct SearchRequest {
  Job base;  // model, sequence length, global batch, precision and software
  Cluster cluster;
  std::optional<int> data, tensor, pipeline, context, zero_stage;
  std::optional<int> expert;       // expert-parallel size
  std::optional<int> shard_ranks;  // 0: all ranks; unset: search all ranks and the ranks of a node
  std::optional<int64_t> micro_batch, micro_batches;
  std::optional<bool> sequence_parallel;  // unset: enabled with tensor parallelism
  std::optional<Recompute> recompute;
  std::optional<Offload> offload;
  std::optional<schedule::Kind> schedule;
  std::optional<int> virtual_stages;
  std::vector<int64_t>
      split;  // layers per stage, applied to pipelines with that number of stages; empty: searched
  size_t best = 5;
};

struct GridVisitor {
  std::function<void(const Job&)> plan;
  /// Called with each kind of plan excluded from the grid and the reason. May be called repeatedly
  /// for the same kind.
  std::function<void(const std::string& what, const std::string& why)> refuse;
};

/// Returns the recompute settings of the grid in order of increasing savings. Selective
/// recomputation is excluded if the MLP contains dropout.
std::vector<Recompute> recompute_choices(const model::ModelConfig& model);

/// Calls visitor.plan for every plan of the grid, in a deterministic order. The grid varies:
/// parallel sizes that divide the devices (tensor within a node, context with at least 1024 tokens
/// per rank, pipeline up to the number of layers); micro-batches of up to 64 sequences that divide
/// a data-parallel rank's share of the global batch; ZeRO stages; shard groups; schedules with 1,
/// 2, 4 and 8 stages per rank; recomputation; offloading; and experts on each rank or distributed
/// over the largest divisor within a node. Every plan uses exactly the global batch.
void visit_grid(const SearchRequest& request, const GridVisitor& visitor);

}  // namespace lockstep::plan
