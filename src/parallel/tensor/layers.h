// The layers of a tensor-parallel model: each stands in the slot of the plain one whose parameters
// it holds a part of.
#pragma once

#include <memory>

#include "mesh/cut.h"
#include "nn/layers.h"
#include "parallel/ranks/part_dropout.h"
#include "parallel/tensor/region.h"
#include "parallel/tensor/token_loss.h"

namespace lockstep::parallel {

/// Before sharded layers: what goes in is the last thing that every rank computes alike, or of its
/// part of the sequence. What comes out goes to several layers, and its gradient is summed once,
/// while the rank makes the gradients of their weights.
struct Entrance final : nn::RegionBoundary {
  explicit Entrance(Region region) : region(std::move(region)) {}
  Region region;
  std::shared_ptr<DeferredQueue> weight_gradients = std::make_shared<DeferredQueue>();
  Tensor forward(const Tensor& x) const override { return region.enter(x, weight_gradients); }
};

/// Before a layer that every rank holds whole and computes alike.
struct WholeSequence final : nn::RegionBoundary {
  explicit WholeSequence(Region region) : region(std::move(region)) {}
  Region region;
  Tensor forward(const Tensor& x) const override { return region.gather(x); }
};

/// Behind sharded layers: their parts are added up.
struct Exit final : nn::RegionBoundary {
  explicit Exit(Region region) : region(std::move(region)) {}
  Region region;
  Tensor forward(const Tensor& x) const override { return region.leave(x); }
};

/// Holds the inputs' part of the product: what it gives is a part of the sum over the ranks. The
/// bias is added to the sum.
struct ShardedToAllLinear final : nn::Linear {
  ShardedToAllLinear(const nn::Linear& plain, Region region)
      : Linear(plain),
        region(std::move(region)),
        bias(product_->take_bias()) {}
  Region region;
  Tensor bias;
  Tensor forward(const Tensor& x, const nn::ForwardContext& context) const override;
  void visit_parameters(const nn::ParameterFunction& function) override;
};

/// The same where the parts are added up further on: each rank adds its share of the bias.
struct PartOfSumLinear final : nn::Linear {
  PartOfSumLinear(const nn::Linear& plain, int ranks)
      : Linear(plain),
        ranks(ranks),
        bias(product_->take_bias()) {}
  int ranks;
  Tensor bias;
  Tensor forward(const Tensor& x, const nn::ForwardContext& context) const override;
  void visit_parameters(const nn::ParameterFunction& function) override;
};

/// An RMS norm over the heads of all ranks, of which each has its own: what goes in is [..., this
/// rank's heads x D]. Every rank of the group must call: the ranks exchange one number a row in the
/// forward pass and one in the backward pass. `copies` ranks hold the same heads as this one.
struct NormOverRanks final : nn::Norm {
  NormOverRanks(const nn::Norm& plain, Region region, int64_t width, int copies)
      : Norm(plain),
        region(std::move(region)),
        width(width),
        copies(copies) {}
  Region region;
  int64_t width;  // of all heads together
  int copies;
  Tensor forward(const Tensor& x) const override;
  ops::SumAndNorm forward_beside(const Tensor& x) const override { return {x, forward(x)}; }
};

/// Dropout between two sharded layers, of the rank's part of the width: the mask of the whole.
struct ShardedWidthDropout final : PartDropout {
  ShardedWidthDropout(const nn::Dropout& plain, mesh::Range part, int64_t width)
      : PartDropout(plain) {
    columns = part;
    this->width = width;
  }
};

/// Holds the rows `rows` of the vocabulary; the others' tokens come from the other ranks.
struct VocabularyParallelEmbedding final : nn::TokenEmbedding {
  VocabularyParallelEmbedding(
      const nn::TokenEmbedding& plain, Region region, mesh::Range rows, int64_t vocabulary);
  Region region;
  mesh::Range rows;
  int64_t vocabulary;
  Tensor forward(const Tensor& ids) const override;
  /// Each is shared out by itself (sequence parallelism).
  nn::Tensors forward_each(
      const nn::Tensors& ids, const std::vector<const nn::TableAdapter*>& adapters) const override;

 private:
  /// The places of ids [B, T] among the rank's rows, and which are other ranks' (whose place is 0).
  struct Places {
    Tensor local, elsewhere;
  };
  Places places_of(const Tensor& ids) const;
};

/// The rank's part of the sequence of the positions' rows (sequence parallelism).
struct SequenceShardedPositions final : nn::PositionEmbedding {
  SequenceShardedPositions(const nn::PositionEmbedding& plain, Region region)
      : PositionEmbedding(plain),
        region(std::move(region)) {}
  Region region;
  Tensor forward(const Tensor& positions, int64_t first, int64_t length) const override;
};

/// Holds the rows `rows` of the vocabulary: logits are never gathered for a loss.
struct VocabularyParallelHead final : nn::Head {
  VocabularyParallelHead(const nn::Head& plain, Region region, mesh::Range rows, int64_t vocabulary)
      : Head(plain),
        region(std::move(region)),
        rows(rows),
        vocabulary_size(vocabulary) {}
  Region region;
  mesh::Range rows;
  int64_t vocabulary_size;
  Tensor loss(
      const Tensor& hidden,
      const Tensor& vocabulary,
      const nn::Targets& targets,
      const Tensor& weights,
      double label_smoothing) const override;
  Tensor logits(const Tensor& hidden, const Tensor& vocabulary) const override;
  nn::Scores scores(
      const Tensor& hidden, const Tensor& vocabulary, const nn::Targets& targets) const override;

 private:
  VocabularyShard shard() const { return {region.group, rows, vocabulary_size}; }
};

}  // namespace lockstep::parallel
