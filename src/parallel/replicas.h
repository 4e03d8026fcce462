// Silent corruption: values that several ranks hold alike are compared, so that a flipped bit or a
// product that went wrong on one of them does not end in a checkpoint (Dixit et al., "Silent Data
// Corruptions at Scale", 2021).
#pragma once

#include <span>

#include "parallel/data/shard_groups.h"
#include "parallel/sharded_model.h"

namespace lockstep::parallel {

/// Compares hashes of what ranks hold alike between two steps: whole values over the ranks of a
/// ZeRO group (stage 0, and what is frozen), shards over their replicas elsewhere. A read of the
/// values, and 8 bytes a flat unit sent. Every rank must call. Error (environment) on the ranks of
/// a group that differs: which of them hold what most others do not (of two: both), of which
/// parameters.
void compare_replicas(std::span<ShardedModel> stages);

}  // namespace lockstep::parallel
