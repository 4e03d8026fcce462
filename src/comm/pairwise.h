// All-gather and reduce-scatter with one message per pair of ranks, for tensors in host memory.
//
// Gloo's reduce-scatter is an all-reduce plus a copy, and its all-gather uses a staging buffer.
// These send the theoretical minimum, (n - 1) / n of the whole from each rank, directly into place.
// A ring would need a thread that starts each round; pairwise messages progress while the rank
// computes. Sums are in rank order, and in float32 for smaller types, so that the bits do not
// depend on timing.
#pragma once

#include <functional>
#include <span>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/communicator.h"

namespace lockstep::comm {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// Starts all transfers; the returned work completes with the last one.
WorkPtr start_transfers(c10d::ProcessGroup& group, std::span<const P2p> transfers);

/// Sends `in` [n] to every rank and fills `out` [ranks x n]. `in` may be this rank's slice of
/// `out`. The tag must differ from those of all gathers in flight between two of the ranks.
WorkPtr start_pairwise_gather(
    c10d::ProcessGroup& group, const Tensor& out, const Tensor& in, int tag);

struct PairwiseReduction {
  WorkPtr work;                  // completes when all peers' slices have arrived
  std::function<void()> finish;  // reduces the slices into `out`
};
/// Reduces slices of `in` [ranks x n] into `out` [n]. The type must satisfy can_reduce(). `out` may
/// be this rank's slice of `in`. `reader`, if set, receives ranges of `out` as they are reduced.
PairwiseReduction start_pairwise_reduce_scatter(
    c10d::ProcessGroup& group,
    const Tensor& out,
    const Tensor& in,
    Reduce reduce,
    int tag,
    const ResultReader& reader);

}  // namespace lockstep::comm
