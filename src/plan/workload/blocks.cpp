// Table of block kinds.
#include "plan/workload/blocks.h"

#include <algorithm>
#include <numeric>

namespace lockstep::plan {

namespace {

using Sees = AttentionPart::Sees;

constexpr AttentionPart kToItsPast{Stream::kTarget, Sees::kPast};
constexpr AttentionPart kToTheSource{Stream::kSource, Sees::kAll};
constexpr std::array<BlockParts, kBlockKinds> kParts{{
    {Stream::kTarget, 1, {kToItsPast}, false},
    {Stream::kSource, 1, {kToTheSource}, false},
    {Stream::kSource, 1, {kToTheSource}, true},
    {Stream::kTarget, 2, {kToItsPast, kToTheSource}, false},
    {Stream::kTarget, 1, {kToItsPast}, false},
}};

}  // namespace

const BlockParts& parts_of(BlockKind kind) {
  return kParts.at(static_cast<size_t>(kind));
}

double inner_width(const model::ModelConfig& model, BlockKind kind) {
  const int64_t width =
      kind == BlockKind::kSparseDecoder
          ? model.experts.per_token * model.experts.width + model.experts.shared_width
          : model.intermediate_size;
  return static_cast<double>(width);
}

int64_t BlockCounts::all() const {
  return std::accumulate(of.begin(), of.end(), int64_t{0});
}

BlockCounts& BlockCounts::operator+=(const BlockCounts& other) {
  for (size_t kind = 0; kind < kBlockKinds; ++kind) {
    of.at(kind) += other.of.at(kind);
  }
  return *this;
}

BlockCounts blocks_of(const model::ModelConfig& model, int64_t first, int64_t count) {
  BlockCounts blocks;
  const auto add = [&](BlockKind kind, int64_t begin, int64_t end) {
    blocks.of.at(static_cast<size_t>(kind)) =
        std::max<int64_t>(0, std::min(end, first + count) - std::max(begin, first));
  };
  const int64_t encoders = model.encoder_layers;
  if (encoders > 0) {
    add(BlockKind::kEncoder, 0, encoders - 1);
    add(BlockKind::kEncoderEnd, encoders - 1, encoders);
  }
  add(encoders > 0 ? BlockKind::kCrossDecoder : BlockKind::kDecoder, encoders, model.layers);
  int64_t sparse = 0;
  for (int64_t layer = std::max<int64_t>(first, 0); layer < std::min(first + count, model.layers);
       ++layer) {
    sparse += model.has_experts(layer) ? 1 : 0;
  }
  blocks.of.at(static_cast<size_t>(BlockKind::kSparseDecoder)) = sparse;
  blocks.of.at(static_cast<size_t>(BlockKind::kDecoder)) -= sparse;
  return blocks;
}

BlockCounts blocks_of(const model::ModelConfig& model) {
  return blocks_of(model, 0, model.layers);
}

}  // namespace lockstep::plan
