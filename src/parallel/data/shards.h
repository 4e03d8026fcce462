// Adds the shards of an engine's flat units to an optimizer, one per unit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "parallel/data/data_parallel.h"
#include "parallel/offload/offloaded_optimizer.h"
#include "parallel/ranks/sharded_parameter.h"

namespace lockstep::parallel {

/// Describes engine parameters that are themselves shards of model parameters over a group of
/// ranks.
struct PartsOfParameters {
  comm::Communicator* group = nullptr;  // null: the parameters are whole
  /// Returns the whole shape and the cut of a parameter. Replicas are within the group.
  std::function<ShardedParameter(const std::string& name, const std::vector<int64_t>& part)>
      part_of;
};

/// Adds this rank's shard of each trained flat unit to the optimizer, with a float32 master copy if
/// the unit's type is smaller, and with a reduction over the ranks. The engine and the groups must
/// outlive the optimizer.
void add_shards(
    DataParallel& engine,
    comm::Communicator& group,
    OffloadedOptimizer& optimizer,
    const PartsOfParameters& parts = {});

}  // namespace lockstep::parallel
