// From the engine's flat units to an optimizer: one shard a unit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "parallel/data/data_parallel.h"
#include "parallel/offload/offloaded_optimizer.h"
#include "parallel/ranks/sharded_parameter.h"

namespace lockstep::parallel {

/// Where the parameters of an engine are parts of a model's, over a group of ranks.
struct PartsOfParameters {
  comm::Communicator* group = nullptr;  // null: they are whole
  /// The whole's shape and the part; its copies are those in the group.
  std::function<ShardedParameter(const std::string& name, const std::vector<int64_t>& part)>
      part_of;
};

/// Gives the optimizer this rank's shard of every trained flat unit, with a float32 master where
/// the unit is of a smaller type, and a way to sum over the ranks. The engine and the groups must
/// outlive the optimizer.
void add_shards(
    DataParallel& engine,
    comm::Communicator& group,
    OffloadedOptimizer& optimizer,
    const PartsOfParameters& parts = {});

}  // namespace lockstep::parallel
