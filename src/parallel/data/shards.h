// Connects the engine's flat units to an optimizer: one shard per unit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "parallel/data/data_parallel.h"
#include "parallel/offload/offloaded_optimizer.h"
#include "parallel/ranks/sharded_parameter.h"

namespace lockstep::parallel {

/// Describes an engine's parameters that are shards of a model's parameters over a group of ranks.
struct PartsOfParameters {
  comm::Communicator* group = nullptr;  // null: the parameters are whole
  /// Whole shape and cut of a parameter; replicas are within the group.
  std::function<ShardedParameter(const std::string& name, const std::vector<int64_t>& part)>
      part_of;
};

/// Adds this rank's shard of every trained flat unit to the optimizer, with a float32 master if the
/// unit has a smaller type, and a reduction over the ranks. The engine and the groups must outlive
/// the optimizer.
void add_shards(
    DataParallel& engine,
    comm::Communicator& group,
    OffloadedOptimizer& optimizer,
    const PartsOfParameters& parts = {});

}  // namespace lockstep::parallel
