// Training state by parameter name and global shape, independent of the plan. This is the content
// of checkpoints.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "mesh/cut.h"
#include "parallel/offload/offloaded_optimizer.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/sharded_model.h"

namespace lockstep::parallel {

/// A contiguous range of a training-state tensor on this rank. Checkpoint files depend only on
/// names and global shapes.
struct StateSlice {
  std::string file_group;      // "model" or "optimizer"
  std::string name;            // "transformer.wte.weight", "exp_avg.transformer.wte.weight"
  std::vector<int64_t> shape;  // shape of the whole tensor
  mesh::Cut cut;               // this rank's shard
  int64_t begin = 0;           // index of the first element of `data` in the shard
  Tensor data;                 // flat view of the live state; visitors may read and write it
  int64_t owned_begin = 0;     // range of `data` that this rank writes or counts;
  int64_t owned_end = 0;       // each element of the whole tensor is owned by exactly one rank
  bool transient = false;      // `data` is valid only during the visit (state stored in files)
};

/// Implements ParallelModel::visit_state.
void visit_state(
    std::span<ShardedModel> stages,
    OffloadedOptimizer& optimizer,
    ParallelGroups& axes,
    const std::function<void(const StateSlice&)>& visit);

/// Implements ParallelModel::visit_gradients. Visits the summed gradients multiplied by `factor`.
void visit_gradients(
    std::span<const ShardedModel> stages,
    double factor,
    const std::function<void(const StateSlice&)>& visit);

}  // namespace lockstep::parallel
