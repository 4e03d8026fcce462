// The training state by the names and global shapes of parameters, whatever the plan: what
// checkpoints hold.
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

/// A run of a tensor of the training state that this rank holds, for checkpoints. Names and global
/// shapes are all that a file depends on.
struct StateSlice {
  std::string file_group;      // "model" or "optimizer"
  std::string name;            // "transformer.wte.weight", "exp_avg.transformer.wte.weight"
  std::vector<int64_t> shape;  // of the whole tensor
  mesh::Cut cut;               // the part of it that this rank holds
  int64_t begin = 0;           // the first element of the part that `data` holds
  Tensor data;                 // flat, a view of the live state: may be read and written
  int64_t owned_begin = 0;     // of `data`'s elements, those that this rank writes or counts:
  int64_t owned_end = 0;       // every element of the whole tensor is owned by exactly one rank
  bool transient = false;      // `data` is there during the visit alone (state that lives in files)
};

/// ParallelModel::visit_state, of these stages.
void visit_state(
    std::span<ShardedModel> stages,
    OffloadedOptimizer& optimizer,
    ParallelGroups& axes,
    const std::function<void(const StateSlice&)>& visit);

/// ParallelModel::visit_gradients: the summed gradients times `factor`.
void visit_gradients(
    std::span<const ShardedModel> stages,
    double factor,
    const std::function<void(const StateSlice&)>& visit);

}  // namespace lockstep::parallel
