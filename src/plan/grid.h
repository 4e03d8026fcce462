// The plans that a search is complete over.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/machines/cluster.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// What is asked for; fields that are given are not searched.
struct SearchRequest {
  Job base;  // the model, sequence, global batch, precision and software
  Cluster cluster;
  std::optional<int> data, tensor, pipeline, context, zero_stage;
  std::optional<int> expert;       // ranks that hold a mixture's experts between them
  std::optional<int> shard_ranks;  // 0: all share; not given: all, or those of a node
  std::optional<int64_t> micro_batch, micro_batches;
  std::optional<bool> sequence_parallel;  // not given: wherever there are tensor ranks
  std::optional<Recompute> recompute;
  std::optional<Offload> offload;
  std::optional<schedule::Kind> schedule;
  std::optional<int> virtual_stages;
  std::vector<int64_t> split;  // of the layers, for pipelines of as many stages; empty: searched
  size_t best = 5;
};

struct GridVisitor {
  std::function<void(const Job&)> plan;
  /// A kind of plans that is not in the grid, and why; the same one may be told more than once.
  std::function<void(const std::string& what, const std::string& why)> refuse;
};

/// The forms of recomputation in the grid, from the one that saves nothing to the one that saves
/// most. Dropout inside the MLP has no selective one.
std::vector<Recompute> recompute_choices(const model::ModelConfig& model);

/// Calls visitor.plan for every plan of the grid, in an order of its own that is always the same:
/// sizes of the axes that divide the devices (tensor within a node, context as long as a rank has
/// 1024 tokens, pipeline up to the layers), micro-batches of up to 64 sequences that divide a data
/// rank's share of the global batch, ZeRO stages, who shares a state, schedules with 1, 2, 4 and 8
/// stages a rank, recomputation, offloading, a mixture's experts on each rank or over the most of a
/// node that divide them. Every plan has exactly the global batch.
void visit_grid(const SearchRequest& request, const GridVisitor& visitor);

}  // namespace lockstep::plan
