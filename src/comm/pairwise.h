// All-gather and reduce-scatter with one message per pair of ranks, for tensors in host memory.
//
// Gloo's reduce-scatter is an all-reduce plus a copy, and its all-gather uses a staging buffer.
// These functions send the theoretical minimum, (n - 1) / n of the whole from each rank, directly
// to its destination. A ring would need a thread that starts each round, while pairwise messages
// progress as the rank computes. Sums are computed in rank order, and in float32 for smaller types,
// so that the bits do not depend on timing.
#pragma once

#include <functional>
#include <span>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/communicator.h"

namespace lockstep::comm {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// Starts all transfers. The returned work completes when the last transfer has completed.
WorkPtr start_transfers(c10d::ProcessGroup& group, std::span<const P2p> transfers);

/// Sends `in` [n] to all ranks and fills `out` [ranks x n]. `in` may be this rank's slice of `out`.
/// The tag must differ from those of all other gathers in flight between any two of the ranks.
WorkPtr start_pairwise_gather(
    c10d::ProcessGroup& group, const Tensor& out, const Tensor& in, int tag);

struct PairwiseReduction {
  WorkPtr work;                  // completes when the slices of all peers have arrived
  std::function<void()> finish;  // reduces the slices into `out`
};
/// Reduces this rank's slices of `in` [ranks x n] into `out` [n]. can_reduce() must be true for the
/// type. `out` may be this rank's slice of `in`. `reader`, if set, receives ranges of `out` as soon
/// as they are reduced.
PairwiseReduction start_pairwise_reduce_scatter(
    c10d::ProcessGroup& group,
    const Tensor& out,
    const Tensor& in,
    Reduce reduce,
    int tag,
    const ResultReader& reader);

}  // namespace lockstep::comm
