// The kinds of blocks that models are made of: which sequence each computes on, and where it
// attends. A decoder alone has one kind; an encoder-decoder has an encoder's and a decoder's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "model/model_config.h"

namespace lockstep::plan {

/// The sequences of a model: the one that it learns to write, and the source that an encoder reads.
enum class Stream { kTarget, kSource };

enum class BlockKind {
  kDecoder,        // of a model that is a decoder alone
  kEncoder,        // sees its whole sequence
  kEncoderEnd,     // the last of an encoder, with the norm of what all decoder blocks read
  kCrossDecoder,   // attends to its own sequence, then to the source
  kSparseDecoder,  // of a decoder alone, with experts in place of the MLP
};
constexpr size_t kBlockKinds = 5;

/// An attention: its queries are of the block's own stream.
struct AttentionPart {
  enum class Sees { kPast, kAll };
  Stream keys = Stream::kTarget;
  Sees sees = Sees::kPast;
};

struct BlockParts {
  Stream stream = Stream::kTarget;
  size_t attentions = 1;
  std::array<AttentionPart, 2> attention{};  // the first `attentions` of them
  bool ends_stream = false;                  // a norm of its output follows

  /// Attentions and the MLP: each has a norm, and is added to the residual.
  double sublayers() const { return static_cast<double>(attentions) + 1; }
};
const BlockParts& parts_of(BlockKind kind);

/// The numbers inside of the MLP that a token has: of all its experts together.
double inner_width(const model::ModelConfig& model, BlockKind kind);

/// How many blocks of each kind.
struct BlockCounts {
  std::array<int64_t, kBlockKinds> of{};

  int64_t all() const;
  int64_t count(BlockKind kind) const { return of[static_cast<size_t>(kind)]; }
  BlockCounts& operator+=(const BlockCounts& other);
};
/// Those of `count` layers from layer `first` on.
BlockCounts blocks_of(const model::ModelConfig& model, int64_t first, int64_t count);
/// Those of the whole model.
BlockCounts blocks_of(const model::ModelConfig& model);

/// Calls visit(kind, count) for each kind of which there are some, in the order of use.
template <class Visit>
void visit_blocks(const BlockCounts& blocks, Visit&& visit) {
  for (size_t kind = 0; kind < kBlockKinds; ++kind) {
    if (blocks.of[kind] > 0) {
      visit(static_cast<BlockKind>(kind), static_cast<double>(blocks.of[kind]));
    }
  }
}

/// The sum of of_kind(kind) over all blocks.
template <class OfKind>
double sum_blocks(const BlockCounts& blocks, OfKind&& of_kind) {
  double sum = 0;
  visit_blocks(blocks, [&](BlockKind kind, double count) { sum += count * of_kind(kind); });
  return sum;
}

/// The largest of of_kind(kind) over the kinds that there are.
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
