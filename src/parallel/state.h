// The training state by names and global shapes of parameters, independent of the plan: the content
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

/// A contiguous range of a tensor of the training state on this rank, for checkpoints. Files depend
/// only on names and global shapes.
struct StateSlice {
  std::string file_group;      // "model" or "optimizer"
  std::string name;            // "transformer.wte.weight", "exp_avg.transformer.wte.weight"
  std::vector<int64_t> shape;  // shape of the whole tensor
  mesh::Cut cut;               // this rank's shard
  int64_t begin = 0;           // index in the shard of the first element of `data`
  Tensor data;                 // flat view of the live state; may be read and written
  int64_t owned_begin = 0;     // the range of `data` that this rank writes or counts:
  int64_t owned_end = 0;       // every element of the whole tensor is owned by exactly one rank
  bool transient = false;      // `data` is valid only during the visit (state in files)
};

/// Implements ParallelModel::visit_state for these stages.
void visit_state(
    std::span<ShardedModel> stages,
    OffloadedOptimizer& optimizer,
    ParallelGroups& axes,
    const std::function<void(const StateSlice&)>& visit);

/// Implements ParallelModel::visit_gradients: visits the summed gradients times `factor`.
void visit_gradients(
    std::span<const ShardedModel> stages,
    double factor,
    const std::function<void(const StateSlice&)>& visit);

}  // namespace lockstep::parallel
