// All-gather and reduce-scatter by one message between every two ranks, for tensors in host memory.
//
// Gloo's own reduce-scatter is an all-reduce and a copy, and its all-gather goes through a buffer
// of its own; these send what theory says, (n - 1) / n of the whole from each rank, into place. A
// message a pair, not a ring: a ring of sends needs someone to start its next round, these go on
// while the rank computes. The sum is taken in rank order, in float32 where the type is smaller, so
// that its bits do not depend on who is quick.
#pragma once

#include <functional>
#include <span>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/communicator.h"

namespace lockstep::comm {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// Starts all of them; the work ends with the last.
WorkPtr start_transfers(c10d::ProcessGroup& group, std::span<const P2p> transfers);

/// `in` [n] to every rank; `out` [ranks x n]. `in` may be this rank's part of `out`. The tag tells
/// this gather from all others that are on their way between two ranks.
WorkPtr start_pairwise_gather(
    c10d::ProcessGroup& group, const Tensor& out, const Tensor& in, int tag);

struct PairwiseReduction {
  WorkPtr work;                  // the parts of the others are here
  std::function<void()> finish;  // reduces them into `out`
};
/// `in` [ranks x n] of a type that can_reduce(), `out` [n], which may be this rank's part of `in`.
/// `reader`, where there is one, is told of `out` as it is made.
PairwiseReduction start_pairwise_reduce_scatter(
    c10d::ProcessGroup& group,
    const Tensor& out,
    const Tensor& in,
    Reduce reduce,
    int tag,
    const ResultReader& reader);

}  // namespace lockstep::comm
