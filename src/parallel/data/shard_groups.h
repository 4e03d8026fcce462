// Groups of ranks that share one ZeRO state, and of those that hold replicas of it.
#pragma once

#include "parallel/ranks/parallel_groups.h"

namespace lockstep::parallel {

/// Hybrid sharding (Zhao et al., "PyTorch FSDP", VLDB 2023, 3.2.2; Wang et al., "ZeRO++", 2023):
/// neighboring ranks share a state, so that gathers stay within a node, and gradients are also
/// summed over the ranks that hold the same shard elsewhere.
struct ShardGroups {
  comm::Communicator* shards = nullptr;
  comm::Communicator* replicas = nullptr;  // null: no replicas
  comm::Communicator* holders = nullptr;   // both: all ranks that hold the same parameters

  /// This rank's index among the replicas, over which the writing of replicated tensors is divided.
  int replica_rank() const { return replicas == nullptr ? 0 : replicas->rank(); }
  int replica_count() const { return replicas == nullptr ? 1 : replicas->size(); }
};

/// Groups of `shard_ranks` neighbors of `holders` (null: axes.data_context()); 0: all share one
/// state. Every rank must call; `axes` owns the groups. Throws Error (config) if the number does
/// not divide theirs.
ShardGroups make_shard_groups(
    ParallelGroups& axes, int shard_ranks, comm::Communicator* holders = nullptr);

}  // namespace lockstep::parallel
