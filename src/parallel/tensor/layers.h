// Tensor-parallel layers: each replaces the plain layer in a slot and holds a shard of its
// parameters.
#pragma once

#include <memory>

#include "mesh/cut.h"
#include "nn/layers.h"
#include "parallel/ranks/part_dropout.h"
#include "parallel/tensor/region.h"
#include "parallel/tensor/token_loss.h"

namespace lockstep::parallel {

/// Entry of sharded layers: its input is replicated, or a shard of the sequence. Its output feeds
/// several layers, and their input gradient is summed once while the rank computes their weight
/// gradients.
struct Entrance final : nn::RegionBoundary {
  explicit Entrance(Region region) : region(std::move(region)) {}
  Region region;
  std::shared_ptr<DeferredQueue> weight_gradients = std::make_shared<DeferredQueue>();
  Tensor forward(const Tensor& x) const override { return region.enter(x, weight_gradients); }
};

/// Entry of a layer that every rank holds whole and computes identically.
struct WholeSequence final : nn::RegionBoundary {
  explicit WholeSequence(Region region) : region(std::move(region)) {}
  Region region;
  Tensor forward(const Tensor& x) const override { return region.gather(x); }
};

/// Exit of sharded layers: sums the ranks' partial results.
struct Exit final : nn::RegionBoundary {
  explicit Exit(Region region) : region(std::move(region)) {}
  Region region;
  Tensor forward(const Tensor& x) const override { return region.leave(x); }
};

/// Linear sharded along its inputs: each rank computes a partial sum. The bias is added to the sum.
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

/// The same if the partial sums are reduced later: each rank adds its share of the bias.
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

/// RMS norm over the heads of all ranks: the input is [..., this rank's heads x D]. Every rank of
/// the group must call: the ranks exchange one number per row in the forward pass and one in the
/// backward pass. `copies` ranks hold replicas of the same heads.
struct NormOverRanks final : nn::Norm {
  NormOverRanks(const nn::Norm& plain, Region region, int64_t width, int copies)
      : Norm(plain),
        region(std::move(region)),
        width(width),
        copies(copies) {}
  Region region;
  int64_t width;  // width of all heads together
  int copies;
  Tensor forward(const Tensor& x) const override;
  ops::SumAndNorm forward_beside(const Tensor& x) const override { return {x, forward(x)}; }
};

/// Dropout between two sharded layers on the rank's columns: applies the rank's columns of the
/// whole mask.
struct ShardedWidthDropout final : PartDropout {
  ShardedWidthDropout(const nn::Dropout& plain, mesh::Range part, int64_t width)
      : PartDropout(plain) {
    columns = part;
    this->width = width;
  }
};

/// Embedding with the rows `rows` of the vocabulary; the ranks' results are summed.
struct VocabularyParallelEmbedding final : nn::TokenEmbedding {
  VocabularyParallelEmbedding(
      const nn::TokenEmbedding& plain, Region region, mesh::Range rows, int64_t vocabulary);
  Region region;
  mesh::Range rows;
  int64_t vocabulary;
  Tensor forward(const Tensor& ids) const override;
  /// Each tensor is scattered separately (sequence parallelism).
  nn::Tensors forward_each(
      const nn::Tensors& ids, const std::vector<const nn::TableAdapter*>& adapters) const override;

 private:
  /// Row indices of ids [B, T] in the rank's shard, and a mask of tokens of other ranks (index 0).
  struct Places {
    Tensor local, elsewhere;
  };
  Places places_of(const Tensor& ids) const;
};

/// The rank's sequence shard of the position embeddings (sequence parallelism).
struct SequenceShardedPositions final : nn::PositionEmbedding {
  SequenceShardedPositions(const nn::PositionEmbedding& plain, Region region)
      : PositionEmbedding(plain),
        region(std::move(region)) {}
  Region region;
  Tensor forward(const Tensor& positions, int64_t first, int64_t length) const override;
};

/// Head with the rows `rows` of the vocabulary; losses never gather the logits.
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
