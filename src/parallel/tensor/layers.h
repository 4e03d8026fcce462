// Tensor-parallel layers. Each replaces the plain layer in a slot and holds a shard of its
// parameters.
#pragma once

#include <memory>

#include "mesh/cut.h"
#include "nn/layers.h"
#include "parallel/ranks/part_dropout.h"
#include "parallel/tensor/region.h"
#include "parallel/tensor/token_loss.h"

namespace lockstep::parallel {

/// Entry to sharded layers. The input is replicated or sharded by sequence. Several layers read the
/// output. The sum of their input gradients is reduced over the ranks once, while the rank computes
/// the weight gradients.
struct Entrance final : nn::RegionBoundary {
  explicit Entrance(Region region) : region(std::move(region)) {}
  Region region;
  std::shared_ptr<DeferredQueue> weight_gradients = std::make_shared<DeferredQueue>();
  Tensor forward(const Tensor& x) const override { return region.enter(x, weight_gradients); }
};

/// Entry to a layer that every rank holds whole and computes identically.
struct WholeSequence final : nn::RegionBoundary {
  explicit WholeSequence(Region region) : region(std::move(region)) {}
  Region region;
  Tensor forward(const Tensor& x) const override { return region.gather(x); }
};

/// Exit from sharded layers: sums the partial results of the ranks.
struct Exit final : nn::RegionBoundary {
  explicit Exit(Region region) : region(std::move(region)) {}
  Region region;
  Tensor forward(const Tensor& x) const override { return region.leave(x); }
};

/// Linear layer sharded along its inputs. Each rank computes a partial sum, and the bias is added
/// to the total.
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

/// Variant whose partial sums are reduced later: each rank adds its share of the bias.
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

/// RMS norm over the heads of all ranks. The input is [..., this rank's heads x D]. Must be called
/// on every rank of the group, because the ranks exchange one number per row in the forward pass
/// and one in the backward pass. `copies` is the number of ranks that hold replicas of the same
/// heads.
struct NormOverRanks final : nn::Norm {
  NormOverRanks(const nn::Norm& plain, Region region, int64_t width, int copies)
      : Norm(plain),
        region(std::move(region)),
        width(width),
        copies(copies) {}
  Region region;
  int64_t width;  // total width of all heads
  int copies;
  Tensor forward(const Tensor& x) const override;
  ops::SumAndNorm forward_beside(const Tensor& x) const override { return {x, forward(x)}; }
};

/// Dropout between two sharded layers: applies this rank's columns of the mask for the whole width.
struct ShardedWidthDropout final : PartDropout {
  ShardedWidthDropout(const nn::Dropout& plain, mesh::Range part, int64_t width)
      : PartDropout(plain) {
    columns = part;
    this->width = width;
  }
};

/// Embedding that holds the vocabulary rows `rows`. The results are summed over the ranks.
struct VocabularyParallelEmbedding final : nn::TokenEmbedding {
  VocabularyParallelEmbedding(
      const nn::TokenEmbedding& plain, Region region, mesh::Range rows, int64_t vocabulary);
  Region region;
  mesh::Range rows;
  int64_t vocabulary;
  Tensor forward(const Tensor& ids) const override;
  /// Scatters each tensor separately (sequence parallelism).
  nn::Tensors forward_each(
      const nn::Tensors& ids, const std::vector<const nn::TableAdapter*>& adapters) const override;

 private:
  /// `local`: row indices of ids [B, T] in this rank's shard; 0 for tokens of other ranks, which
  /// `elsewhere` marks.
  struct Places {
    Tensor local, elsewhere;
  };
  Places places_of(const Tensor& ids) const;
};

/// Returns this rank's sequence shard of the position embeddings (sequence parallelism).
struct SequenceShardedPositions final : nn::PositionEmbedding {
  SequenceShardedPositions(const nn::PositionEmbedding& plain, Region region)
      : PositionEmbedding(plain),
        region(std::move(region)) {}
  Region region;
  Tensor forward(const Tensor& positions, int64_t first, int64_t length) const override;
};

/// Head that holds the vocabulary rows `rows`. Losses never gather the logits.
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
