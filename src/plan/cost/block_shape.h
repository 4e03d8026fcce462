// The sizes of a block's operations on one rank.
#pragma once

#include <array>
#include <cstddef>

#include "plan/workload/job.h"

namespace lockstep::plan {

/// An attention of a block on one rank: `keys_length` of a whole sequence.
struct AttentionShape {
  double key_tokens, queries_length, keys_length;
  double seen;  // of the scores of a whole sequence
  bool own;     // queries, keys and values come of one input
};

/// What the sizes of a block are on one rank of the tensor axis.
struct BlockShape {
  double tokens, hidden, queries, keys, width, heads, head_dim;
  double matrices;  // of the MLP that widen
  double sublayers;
  bool ends_stream;
  size_t attentions;
  std::array<AttentionShape, 2> attention;

  /// Tokens of the keys of all attentions, and their scores on this rank, seen or not.
  double key_tokens() const;
  double scores() const;
};

BlockShape shape_of(const Job& job, BlockKind kind);

}  // namespace lockstep::plan
