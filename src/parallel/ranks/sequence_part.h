// The part of a sequence that a rank holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/forward_context.h"

namespace lockstep::parallel {

/// A run of `count` consecutive positions, which starts at `local` in the rank's shard and at
/// `whole` in the sequence.
struct PositionRun {
  int64_t local = 0, whole = 0, count = 0;
};

/// The sequence is divided into 2 x ranks chunks, and context rank r holds the r-th chunk from each
/// end, which balances causal attention ("zigzag"). With sequence parallelism, each tensor rank
/// holds a shard of its context rank's positions between tensor-parallel layers.
struct SequencePart {
  int context_rank = 0, context_ranks = 1;
  int tensor_rank = 0, tensor_ranks = 1;

  bool is_whole() const { return context_ranks == 1 && tensor_ranks == 1; }
  /// Returns the number that sequence lengths must be a multiple of.
  int64_t multiple() const;
  /// Returns the position runs of a context rank that holds `length` positions.
  std::vector<PositionRun> runs_of_context(int rank, int64_t length) const;
  /// Returns this rank's position runs between tensor-parallel layers, where it holds `length`
  /// positions.
  std::vector<PositionRun> runs(int64_t length) const;
  /// Returns the positions of runs(length) in the sequence, int64 [length].
  at::Tensor places(int64_t length) const;
};

/// Returns this rank's shard of a micro-batch: the ids, targets and positions of its context rank.
/// The sequence is first padded at the end to a multiple of multiple(), with id 0, without targets
/// and with the position of the last token. Padding does not affect the loss, since no earlier
/// token attends to it. Inputs that need neither are returned unchanged. Document starts are not
/// sharded.
nn::ForwardInputs shard_inputs(const nn::ForwardInputs& inputs, const SequencePart& part);
std::vector<nn::ForwardInputs> shard_inputs(
    std::span<const nn::ForwardInputs> batches, const SequencePart& part);

}  // namespace lockstep::parallel
