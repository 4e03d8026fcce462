// Which of the ranks that hold the same parameters share one state, and which hold replicas of it.
#pragma once

#include "parallel/ranks/parallel_groups.h"

namespace lockstep::parallel {

/// Hybrid sharding (Zhao et al., "PyTorch FSDP", VLDB 2023, 3.2.2; Wang et al., "ZeRO++", 2023):
/// neighbours share a state, so that gathers stay within a machine, and gradients are summed once
/// more over the ranks that hold the same shard elsewhere.
struct ShardGroups {
  comm::Communicator* shards = nullptr;
  comm::Communicator* replicas = nullptr;  // null: nobody else holds these shards
  comm::Communicator* holders = nullptr;   // both: all that hold the same parameters

  /// The ranks over which tensors that every rank holds whole are written by parts: this one's
  /// place among the replicas.
  int replica_rank() const { return replicas == nullptr ? 0 : replicas->rank(); }
  int replica_count() const { return replicas == nullptr ? 1 : replicas->size(); }
};

/// Groups of `shard_ranks` neighbours of `holders` (null: axes.data_context()); 0: all of them
/// share. Every rank must call; `axes` owns the groups. Error (config) where the number does not
/// divide theirs.
ShardGroups make_shard_groups(
    ParallelGroups& axes, int shard_ranks, comm::Communicator* holders = nullptr);

}  // namespace lockstep::parallel
