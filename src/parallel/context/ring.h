// Ring exchange between context ranks.
#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/custom_class.h>

#include "comm/communicator.h"
#include "parallel/ranks/sequence_part.h"

namespace lockstep::parallel {

using at::Tensor;

/// Message tags, which distinguish messages that are in flight between the same two ranks.
enum class RingTag { kKeysAndValues = 1, kGradients = 2 };

/// Ring over the context axis. A torch holder, so that autograd nodes can store it.
struct Ring : torch::CustomClassHolder {
  SequencePart part;
  comm::Communicator* group = nullptr;  // must outlive the model and its autograd graphs

  int rank() const { return group->rank(); }
  int ranks() const { return group->size(); }
  /// Sends `out` to the next rank and receives `in` from the previous one.
  comm::Pending pass(const Tensor& out, const Tensor& in, RingTag tag) const {
    using Direction = comm::P2p::Direction;
    const int next = (rank() + 1) % ranks(), previous = (rank() + ranks() - 1) % ranks();
    if (next == rank()) {  // a single rank copies to itself
      in.copy_(out);
      return {};
    }
    const std::array<comm::P2p, 2> transfers{{
        {Direction::kSend, out, next, static_cast<int>(tag)},
        {Direction::kReceive, in, previous, static_cast<int>(tag)},
    }};
    return group->exchange(transfers);
  }
  /// Returns the position runs of rank `of`, which holds `length` positions. Padding after the end
  /// of the sequence, which is also at the end of the rank's shard, is excluded.
  std::vector<PositionRun> runs_of(int of, int64_t length, int64_t whole_length) const {
    std::vector<PositionRun> runs = part.runs_of_context(of, length);
    for (PositionRun& run : runs) {
      run.count = std::clamp<int64_t>(whole_length - run.whole, 0, run.count);
    }
    return runs;
  }
};

/// Throws Error (internal) if the pass does not process a shard of a sequence.
void require_part(const nn::ForwardContext& context);

inline Tensor run_of(const Tensor& x, const PositionRun& run) {  // [B, H, L, D] or [B, H, L]
  return x.narrow(2, run.local, run.count);
}

/// Calls visit(owner, pair) for the keys and values of every rank, starting with this rank's own,
/// while the next pair is being received. pair [2, B, H, L, D] must not be modified.
template <class Visit>
void visit_ring(const Ring& ring, const Tensor& pair, Visit&& visit) {
  Tensor passing = pair, coming = at::empty_like(pair), spare;
  for (int step = 0; step < ring.ranks(); ++step) {
    comm::Pending transfer;
    if (step + 1 < ring.ranks()) {
      transfer = ring.pass(passing, coming, RingTag::kKeysAndValues);
    }
    visit((ring.rank() + ring.ranks() - step) % ring.ranks(), passing);
    transfer.wait();
    // The caller's pair must stay unmodified, so it is not reused as a buffer.
    spare = step == 0 ? (ring.ranks() > 2 ? at::empty_like(pair) : Tensor()) : passing;
    passing = std::exchange(coming, spare);
  }
}

/// Backward counterpart of visit_ring: visit(owner, pair) returns this rank's contribution to the
/// pair's gradient. The contributions are summed while they travel around the ring to the owner.
/// Returns the gradient of this rank's own pair: its own contribution plus the received sum.
template <class Visit>
Tensor visit_ring_backward(const Ring& ring, const Tensor& pair, Visit&& visit) {
  Tensor own, sending, coming;
  comm::Pending transfer;
  visit_ring(ring, pair, [&](int owner, const Tensor& passing) {
    Tensor of_pair = visit(owner, passing);
    if (owner == ring.rank()) {  // always the first visit
      own = of_pair;
      return;
    }
    transfer.wait();
    if (coming.defined()) {
      of_pair.add_(coming);
    }
    sending = of_pair;
    coming = at::empty_like(of_pair);
    transfer = ring.pass(sending, coming, RingTag::kGradients);
  });
  transfer.wait();  // after this, all other ranks have added their contributions
  return !own.defined() ? coming : coming.defined() ? own.add_(coming) : own;
}

}  // namespace lockstep::parallel
