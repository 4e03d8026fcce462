// Kinds of blocks, with the sequence and attentions of each. A decoder-only model has one kind of
// block; an encoder-decoder model has encoder and decoder kinds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "model/model_config.h"

namespace lockstep::plan {

/// Target sequence that the model predicts and source sequence that the encoder reads.
enum class Stream { kTarget, kSource };

enum class BlockKind {
  kDecoder,        // block of a decoder-only model
  kEncoder,        // bidirectional attention
  kEncoderEnd,     // last block of an encoder, with the final norm
  kCrossDecoder,   // self-attention, then cross-attention to the source
  kSparseDecoder,  // block of a decoder-only model with experts instead of the MLP
};
constexpr size_t kBlockKinds = 5;

/// Attention of a block. Queries are computed from the block's own stream.
struct AttentionPart {
  enum class Sees { kPast, kAll };
  Stream keys = Stream::kTarget;
  Sees sees = Sees::kPast;
};

struct BlockParts {
  Stream stream = Stream::kTarget;
  size_t attentions = 1;
  std::array<AttentionPart, 2> attention{};  // only the first `attentions` elements are used
  bool ends_stream = false;                  // followed by a final norm

  /// Number of attentions and MLPs. Each has a norm and a residual connection.
  double sublayers() const { return static_cast<double>(attentions) + 1; }
};
const BlockParts& parts_of(BlockKind kind);

/// Returns the inner MLP width per token, summed over the experts of the token.
double inner_width(const model::ModelConfig& model, BlockKind kind);

/// Number of blocks of each kind.
struct BlockCounts {
  std::array<int64_t, kBlockKinds> of{};

  int64_t all() const;
  int64_t count(BlockKind kind) const { return of[static_cast<size_t>(kind)]; }
  BlockCounts& operator+=(const BlockCounts& other);
};
/// Returns the block counts of `count` layers from layer `first` on.
BlockCounts blocks_of(const model::ModelConfig& model, int64_t first, int64_t count);
/// Returns the block counts of the whole model.
BlockCounts blocks_of(const model::ModelConfig& model);

/// Calls visit(kind, count) in order of use for each kind with a nonzero count.
template <class Visit>
void visit_blocks(const BlockCounts& blocks, Visit&& visit) {
  for (size_t kind = 0; kind < kBlockKinds; ++kind) {
    if (blocks.of[kind] > 0) {
      visit(static_cast<BlockKind>(kind), static_cast<double>(blocks.of[kind]));
    }
  }
}

/// Returns the sum of of_kind(kind) over all blocks.
template <class OfKind>
double sum_blocks(const BlockCounts& blocks, OfKind&& of_kind) {
  double sum = 0;
  visit_blocks(blocks, [&](BlockKind kind, double count) { sum += count * of_kind(kind); });
  return sum;
}

/// Returns the maximum of of_kind(kind) over all kinds that occur.
template <class OfKind>
double largest_of_blocks(const BlockCounts& blocks, OfKind&& of_kind) {
  double most = 0;
  visit_blocks(blocks, [&](BlockKind kind, double /*count*/) {
    const double value = of_kind(kind);
    most = value > most ? value : most;
  });
  return most;
}

}  // namespace lockstep::plan
