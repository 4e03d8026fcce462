// Sizes of a block's operations on one rank.
#pragma once

#include <array>
#include <cstddef>

#include "plan/workload/job.h"

namespace lockstep::plan {

/// Shape of one attention of a block on one rank. `keys_length` is the length of a whole sequence.
struct AttentionShape {
  double key_tokens, queries_length, keys_length;
  double seen;  // unmasked fraction of a sequence's scores
  bool own;     // self-attention: queries, keys and values are computed from the same input
};

/// Sizes of a block on one tensor-parallel rank.
struct BlockShape {
  double tokens, hidden, queries, keys, width, heads, head_dim;
  double matrices;  // number of up-projections of the MLP
  double sublayers;
  bool ends_stream;
  size_t attentions;
  std::array<AttentionShape, 2> attention;

  /// key_tokens() is the number of key tokens of all attentions. scores() is the number of scores
  /// on this rank, masked or not.
  double key_tokens() const;
  double scores() const;
};

BlockShape shape_of(const Job& job, BlockKind kind);

}  // namespace lockstep::plan
