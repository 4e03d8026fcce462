// From the engine's flat units to an optimizer: one shard a unit.
#pragma once

#include "comm/communicator.h"
#include "parallel/data/data_parallel.h"
#include "parallel/offload/offloaded_optimizer.h"

namespace lockstep::parallel {

/// Gives the optimizer this rank's shard of every trained flat unit, with a float32 master where
/// the unit is of a smaller type, and a way to sum over the ranks. The engine and the group must
/// outlive the optimizer.
void add_shards(DataParallel& engine, comm::Communicator& group, OffloadedOptimizer& optimizer);

}  // namespace lockstep::parallel
