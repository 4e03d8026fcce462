// What goes round a ring of context ranks.
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

/// Tags of what passes at the same time between the same ranks.
enum class RingTag { kKeysAndValues = 1, kGradients = 2 };

/// A ring over the context axis; a holder, so that autograd nodes can keep it.
struct Ring : torch::CustomClassHolder {
  SequencePart part;
  comm::Communicator* group = nullptr;  // outlives the model and its graphs

  int rank() const { return group->rank(); }
  int ranks() const { return group->size(); }
  /// Sends `out` on and takes what comes in its place.
  comm::Pending pass(const Tensor& out, const Tensor& in, RingTag tag) const {
    using Direction = comm::P2p::Direction;
    const int next = (rank() + 1) % ranks(), previous = (rank() + ranks() - 1) % ranks();
    if (next == rank()) {  // alone: what it sends comes in
      in.copy_(out);
      return {};
    }
    const std::array<comm::P2p, 2> transfers{{
        {Direction::kSend, out, next, static_cast<int>(tag)},
        {Direction::kReceive, in, previous, static_cast<int>(tag)},
    }};
    return group->exchange(transfers);
  }
  /// The runs of a rank that holds `length` positions, without the padding behind the sequence's
  /// end: it is at the end of what a rank holds, too.
  std::vector<PositionRun> runs_of(int of, int64_t length, int64_t whole_length) const {
    std::vector<PositionRun> runs = part.runs_of_context(of, length);
    for (PositionRun& run : runs) {
      run.count = std::clamp<int64_t>(whole_length - run.whole, 0, run.count);
    }
    return runs;
  }
};

/// Error (internal) where the pass is not over a part of a sequence.
void require_part(const nn::ForwardContext& context);

inline Tensor run_of(const Tensor& x, const PositionRun& run) {  // [B, H, L, D] or [B, H, L]
  return x.narrow(2, run.local, run.count);
}

/// Keys and values go round: calls visit(owner, pair) with those of each rank, this one's first,
/// while the next are on their way. pair [2, B, H, L, D] is not written to.
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
    // The first one stays as it was.
    spare = step == 0 ? (ring.ranks() > 2 ? at::empty_like(pair) : Tensor()) : passing;
    passing = std::exchange(coming, spare);
  }
}

/// The same in a backward pass: visit(owner, pair) returns what this rank has to say of the pair's
/// gradient, which goes on from the owner's neighbour and is added up on its way home. Returns that
/// of the rank's own pair: what visit() returned of it, if anything, and what came home.
template <class Visit>
Tensor visit_ring_backward(const Ring& ring, const Tensor& pair, Visit&& visit) {
  Tensor own, sending, coming;
  comm::Pending transfer;
  visit_ring(ring, pair, [&](int owner, const Tensor& passing) {
    Tensor of_pair = visit(owner, passing);
    if (owner == ring.rank()) {  // the first
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
  transfer.wait();  // home: every other rank has added its part
  return !own.defined() ? coming : coming.defined() ? own.add_(coming) : own;
}

}  // namespace lockstep::parallel
