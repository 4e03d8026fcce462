// Groups of ranks that share one copy of the ZeRO state, and groups of ranks that hold replicas of
// a shard.
#pragma once

#include "parallel/ranks/parallel_groups.h"

namespace lockstep::parallel {

/// Hybrid sharding (Zhao et al., "PyTorch FSDP", VLDB 2023, 3.2.2; Wang et al., "ZeRO++", 2023).
/// Neighboring ranks share one copy of the state, so that gathers stay within a node. Gradients are
/// also summed over the ranks in other groups that hold the same shard.
struct ShardGroups {
  comm::Communicator* shards = nullptr;
  comm::Communicator* replicas = nullptr;  // null: no replicas
  comm::Communicator* holders = nullptr;   // shards and replicas: all ranks that hold the same
                                           // parameters

  /// This rank's index among the replicas, among which the writing of replicated tensors is
  /// divided.
  int replica_rank() const { return replicas == nullptr ? 0 : replicas->rank(); }
  int replica_count() const { return replicas == nullptr ? 1 : replicas->size(); }
};

/// Creates groups of `shard_ranks` neighbors among `holders` (null: axes.data_context()); 0: all
/// ranks share one copy of the state. Must be called on every rank. `axes` owns the groups. Throws
/// Error (config) if `shard_ranks` does not divide the number of holders.
ShardGroups make_shard_groups(
    ParallelGroups& axes, int shard_ranks, comm::Communicator* holders = nullptr);

}  // namespace lockstep::parallel
