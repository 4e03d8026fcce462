// The positions of a sequence that a rank holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/forward_context.h"

namespace lockstep::parallel {

/// A run of `count` consecutive positions: from `local` in the rank's shard, from `whole` in the
/// sequence.
struct PositionRun {
  int64_t local = 0, whole = 0, count = 0;
};

/// Context rank r holds two of 2 x ranks chunks, the r-th from either end, which balances causal
/// attention ("zigzag"). Between tensor-parallel layers with sequence parallelism, each tensor rank
/// holds a shard of its context rank's positions.
struct SequencePart {
  int context_rank = 0, context_ranks = 1;
  int tensor_rank = 0, tensor_ranks = 1;

  bool is_whole() const { return context_ranks == 1 && tensor_ranks == 1; }
  /// Sequence lengths must be a multiple of this.
  int64_t multiple() const;
  /// The runs of a context rank with `length` positions.
  std::vector<PositionRun> runs_of_context(int rank, int64_t length) const;
  /// The runs of this rank between tensor-parallel layers, where it holds `length` positions.
  std::vector<PositionRun> runs(int64_t length) const;
  /// The same as positions in the sequence, [length] int64.
  at::Tensor places(int64_t length) const;
};

/// Returns a rank's shard of a micro-batch: the ids, targets and positions of its context rank,
/// after padding the sequence at its end to a multiple (id 0, no target, the last position).
/// Padding does not affect the loss, since no earlier token attends to it. Inputs that need neither
/// are returned unchanged. Document starts stay those of whole rows.
nn::ForwardInputs shard_inputs(const nn::ForwardInputs& inputs, const SequencePart& part);
std::vector<nn::ForwardInputs> shard_inputs(
    std::span<const nn::ForwardInputs> batches, const SequencePart& part);

}  // namespace lockstep::parallel
