// Detection of silent data corruption. Replicated values are compared between ranks, so that a
// flipped bit or a wrong product on one rank does not reach a checkpoint (Dixit et al., "Silent
// Data Corruptions at Scale", 2021).
#pragma once

#include <span>

#include "parallel/data/shard_groups.h"
#include "parallel/sharded_model.h"

namespace lockstep::parallel {

/// Compares hashes of replicated values: whole values over the ranks of a ZeRO group (stage 0, and
/// frozen parameters), and shards over the ranks that hold their replicas. Call it between two
/// steps, on every rank. The cost is one read of the values and 8 bytes sent per flat unit. Throws
/// Error (environment) on all ranks of a group whose values differ. The message names the
/// parameters and the ranks in the minority (both ranks of a group of two).
void compare_replicas(std::span<ShardedModel> stages);

}  // namespace lockstep::parallel
