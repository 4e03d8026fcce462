// From the engine's flat units to an optimizer: one shard a unit.
#pragma once

#include <functional>
#include <string>

#include "comm/communicator.h"
#include "parallel/data/data_parallel.h"
#include "parallel/offload/offloaded_optimizer.h"

namespace lockstep::parallel {

/// Gives the optimizer this rank's shard of every trained flat unit, with a float32 master where
/// the unit is of a smaller type, and a way to sum over the ranks. The engine and the group must
/// outlive the optimizer.
void add_shards(DataParallel& engine, comm::Communicator& group, OffloadedOptimizer& optimizer);

/// How much of a parameter's squares this rank counts, where ranks of other groups hold it too.
using ShareOfParameter = std::function<double(const std::string& name)>;

/// The squares of all summed gradients, each element counted once over the group. Every rank of it
/// must call. Without a function, all of each parameter is counted.
double squared_gradients(
    DataParallel& engine, comm::Communicator& group, const ShareOfParameter& share = nullptr);

}  // namespace lockstep::parallel
