// Which positions of a sequence a rank holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/forward_context.h"

namespace lockstep::parallel {

/// Neighbouring positions: `count` of them, from `local` on in what the rank holds, stand from
/// `whole` on in the sequence.
struct PositionRun {
  int64_t local = 0, whole = 0, count = 0;
};

/// Context ranks hold two chunks of 2 x ranks each, the r-th from either end, so that the work of
/// causal attention is even ("zigzag"). Between tensor-parallel layers with sequence sharding, the
/// tensor ranks hold a part each of what their context rank holds.
struct SequencePart {
  int context_rank = 0, context_ranks = 1;
  int tensor_rank = 0, tensor_ranks = 1;

  bool is_whole() const { return context_ranks == 1 && tensor_ranks == 1; }
  /// What a sequence's length must be a multiple of.
  int64_t multiple() const;
  /// The runs of a context rank that holds `length` positions.
  std::vector<PositionRun> runs_of_context(int rank, int64_t length) const;
  /// Those of this rank between tensor-parallel layers, where it holds `length`.
  std::vector<PositionRun> runs(int64_t length) const;
  /// The same as places in the sequence, [length] int64.
  at::Tensor places(int64_t length) const;
};

/// The part of a micro-batch that a rank is given: of ids, targets and positions those of its
/// context rank, after the sequence was padded at its end to a multiple (id 0, no target, the last
/// position). Padding adds nothing to a loss: no token before it attends to it. Inputs that need
/// neither come back as they are. Where documents begin stays that of whole rows.
nn::ForwardInputs shard_inputs(const nn::ForwardInputs& inputs, const SequencePart& part);
std::vector<nn::ForwardInputs> shard_inputs(
    std::span<const nn::ForwardInputs> batches, const SequencePart& part);

}  // namespace lockstep::parallel
