// Detection of silent data corruption: replicated values are compared, so that a flipped bit or a
// wrong product on one rank does not reach a checkpoint (Dixit et al., "Silent Data Corruptions at
// Scale", 2021).
#pragma once

#include <span>

#include "parallel/data/shard_groups.h"
#include "parallel/sharded_model.h"

namespace lockstep::parallel {

/// Compares hashes of replicated values between two steps: whole values over the ranks of a ZeRO
/// group (stage 0, and frozen parameters), shards over their replicas elsewhere. Costs one read of
/// the values and 8 bytes sent per flat unit. Every rank must call. Throws Error (environment) on
/// the ranks of a group that differs, naming the ranks in the minority (of two: both) and the
/// parameters.
void compare_replicas(std::span<ShardedModel> stages);

}  // namespace lockstep::parallel
