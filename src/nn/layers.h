// Layers that fill the slots of a model. They do not communicate between ranks; a parallelism
// strategy replaces the layer in a slot with its own. Parameters use the layout of Hugging Face
// checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/linear_kernel.h"
#include "nn/targets.h"
#include "ops/embedding.h"
#include "ops/norms.h"

namespace lockstep::nn {

using at::Tensor;
/// Inputs or outputs of a model unit (see nn/language_model.h).
using Tensors = std::vector<Tensor>;

class ForwardContext;
struct TableAdapter;

/// A layer with any number of parameters.
struct Layer {
  virtual ~Layer() = default;
  /// Visits the parameters in order of use.
  virtual void visit_parameters(const ParameterFunction& function) = 0;
};

/// Linear layer: y = x W + b.
struct Linear : Layer {
  explicit Linear(std::shared_ptr<LinearKernel> product) : product_(std::move(product)) {}
  /// Creates a dense linear layer.
  explicit Linear(WeightLayout layout) : Linear(std::make_shared<DenseLinearKernel>(layout)) {}
  /// Returns the kernel of this layer. Features that change only the product replace the kernel:
  /// deferred weight gradients, low-rank factors, packed weights.
  virtual std::shared_ptr<LinearKernel>& product() { return product_; }
  /// [..., in] -> [..., out]. The kernel gets its random state from `context`.
  virtual Tensor forward(const Tensor& x, const ForwardContext& context) const {
    return product_->forward(x, product_->draw(context));
  }
  void visit_parameters(const ParameterFunction& function) override {
    product()->visit_parameters(function);
  }

 protected:
  std::shared_ptr<LinearKernel> product_;
};

enum class NormKind { kLayerNorm, kRmsNorm, kExactRmsNorm, kRmsNormAroundOne };

struct Norm : Layer {
  Norm(NormKind kind, double eps) : kind(kind), eps(eps) {}
  NormKind kind;
  double eps;
  Tensor weight, bias;
  void visit_parameters(const ParameterFunction& function) override;
  virtual Tensor forward(const Tensor& x) const { return normalize(x, weight, bias); }
  /// Returns x + residual and the norm of this sum, computed in one pass.
  virtual ops::SumAndNorm add_forward(const Tensor& x, const Tensor& residual) const {
    return add_and_normalize(x, residual, weight, bias);
  }
  /// Returns x and forward(x), for blocks that also use x as the residual. The norm's backward pass
  /// adds the two gradients.
  virtual ops::SumAndNorm forward_beside(const Tensor& x) const;
  /// Normalizes over the last dimension, with statistics in float32. Used by layers that shard the
  /// parameters of the norm.
  Tensor normalize(const Tensor& x, const Tensor& scale, const Tensor& shift) const;
  ops::SumAndNorm add_and_normalize(
      const Tensor& x, const Tensor& residual, const Tensor& scale, const Tensor& shift) const;
};

/// Boundary between a norm and the projections that read its output. Strategies replace it to enter
/// a region of sharded layers. It has no parameters.
struct RegionBoundary {
  virtual ~RegionBoundary() = default;
  /// x may have any shape.
  virtual Tensor forward(const Tensor& x) const { return x; }
};

struct TokenEmbedding : Layer {
  Tensor weight;
  int64_t padding_row = -1;  // row that receives no gradient from lookups; -1: none
  ops::EmbeddingGradient gradient_form = ops::EmbeddingGradient::kTable;
  std::shared_ptr<TableAdapter> adapter;  // null: no adapter
  /// ids [B, T] int64 -> [B, T, C]
  virtual Tensor forward(const Tensor& ids) const { return rows_of(ids); }
  /// Embeds several sequences [B, T_i] with one lookup, so that the gradient of the weight is
  /// computed once. Returns [B, T_i, C] for each. `adapters` has one adapter per sequence or is
  /// empty.
  virtual Tensors forward_each(
      const Tensors& ids, const std::vector<const TableAdapter*>& adapters = {}) const;
  void visit_parameters(const ParameterFunction& function) override;

 protected:
  /// Returns the rows of ids, which must all be on this rank, with the adapter applied.
  Tensor rows_of(const Tensor& ids) const;
  /// Overload for several sequences, each with its own adapter.
  Tensors rows_of_each(const Tensors& ids, const std::vector<const TableAdapter*>& adapters) const;
};

/// Adapter of the embedding table for one of the sequences that use it.
struct SequenceTokens : Layer {
  std::shared_ptr<TableAdapter> adapter;  // null: no adapter
  void visit_parameters(const ParameterFunction& function) override;
};

struct PositionEmbedding : Layer {
  Tensor weight;
  std::shared_ptr<TableAdapter> adapter;  // null: no adapter
  void visit_parameters(const ParameterFunction& function) override;
  /// `positions` [B, T] int64 -> [B, T, C]. If undefined: positions `first`, `first` + 1, ... ->
  /// [T, C].
  virtual Tensor forward(const Tensor& positions, int64_t first, int64_t length) const;

 protected:
  /// Return table rows with the adapter applied.
  Tensor rows_of(const Tensor& positions) const;
  Tensor rows_from(int64_t first, int64_t count) const;
};

/// Attention without the projections.
struct Attention : Layer {
  Tensor sinks;  // [H]: attention sinks of this rank's heads (ops::AttentionOptions); undefined: no
                 // sinks
  bool causal = true;  // false: a query attends to all keys of its document
  double scale = 1;
  double cap = 0;       // soft cap of the scores: ops::AttentionOptions
  int64_t window = 0;   // 0: no window
  double dropout = 0;   // dropout rate of the probabilities in training
  bool upcast = false;  // compute scores in float32
  int64_t layer = 0;
  int64_t site = 0;         // dropout site (dropout_site)
  int64_t first_head = 0;   // index of this rank's first query head, if the heads are sharded
  int64_t total_heads = 0;  // number of heads of the whole layer; 0: all heads are on this rank
  void visit_parameters(const ParameterFunction& function) override;
  /// query [B, H, T, D]; key and value [B, Hkv, T, D]; H is a multiple of Hkv. Rotary embeddings
  /// are already applied. Returns [B, T, H D]. If the context has a cache, key and value are
  /// appended to it, and the queries attend to the whole cache.
  virtual Tensor forward(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const ForwardContext& context) const;
};

/// Relative-position table of a stack of blocks: weight [buckets, H]. It is passed to the blocks as
/// an activation, so that the parameter belongs to a single unit.
struct RelativePositionTable : Layer {
  Tensor weight;
  void visit_parameters(const ParameterFunction& function) override;
  /// Returns a copy of the table as an activation, because the weight may have been freed when the
  /// copy is used.
  virtual Tensor forward() const;
};

/// Attention with a score bias that depends on the distance between key and query, and with an
/// explicit mask instead of causality. It has no parameters.
struct BiasedAttention {
  double dropout = 0;       // dropout rate of the probabilities in training
  int64_t site = 0;         // dropout site (dropout_site)
  int64_t first_head = 0;   // index of this rank's first query head, if the heads are sharded
  int64_t total_heads = 0;  // number of heads of the whole layer; 0: all heads are on this rank
  virtual ~BiasedAttention() = default;
  /// query [B, H, T, D]; key and value [B, H, S, D]; bias [H, T, S] or undefined; visible (bool)
  /// broadcasts to [B, H, T, S] or is undefined. Returns [B, T, H D].
  virtual Tensor forward(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const Tensor& bias,
      const Tensor& visible,
      const ForwardContext& context) const;
};

/// Dropout of activations [B, T, C] in training.
struct Dropout {
  double probability = 0;
  int64_t site = 0;  // identifies this dropout in the model (dropout_site)
  virtual ~Dropout() = default;
  Tensor forward(const Tensor& x, const ForwardContext& context) const;
  /// Returns the random keys of the rows, [B] int64 on the CPU; undefined if nothing is dropped.
  Tensor draw(const ForwardContext& context) const;
  /// Applies the mask for these keys to x or to a gradient. Returns x if the keys are undefined.
  Tensor apply(const Tensor& x, const Tensor& keys) const;

 protected:
  virtual Tensor masked(const Tensor& x, const Tensor& keys) const;
};

/// Uniform noise that training adds to token embeddings [B, T, C] (NEFTune: Jain et al., 2023). It
/// depends on the seed, the step, the sample, the position and the column, but not on the plan.
struct EmbeddingNoise {
  int64_t site = 0;  // identifies the noise among the dropouts of the model (dropout_site)
  virtual ~EmbeddingNoise() = default;
  /// Adds noise of at most ForwardInputs::embedding_noise.
  Tensor forward(const Tensor& x, const ForwardContext& context) const;

 protected:
  virtual Tensor noisy(const Tensor& x, double bound, const Tensor& keys) const;
};

/// Bias added to the logits: [V], or one per class.
struct HeadBias : Layer {
  Tensor bias;
  void visit_parameters(const ParameterFunction& function) override;
};

/// Computes the scores of targets and the loss from the last hidden states, over the vocabulary or,
/// for a classifier, over the classes. `weight` is defined only if the head is not tied.
/// `vocabulary` [V, C] is the weight to use.
struct Head : Layer {
  Tensor weight;
  double cap = 0;                         // logits become cap * tanh(logit / cap); 0: no cap
  std::shared_ptr<TableAdapter> adapter;  // null: no adapter, unless a tied embedding has one
  void visit_parameters(const ParameterFunction& function) override;
  /// Returns the SUM of weight * -score over the targets as a float32 scalar. hidden is [B, T, C].
  /// The score of a token is log p; that of a distribution is minus its loss. The weights [B, T] or
  /// [B, 1] are constants; undefined: 1. Label smoothing distributes a fraction of each target over
  /// the vocabulary (ops::TokenLossOptions::label_smoothing).
  virtual Tensor loss(
      const Tensor& hidden,
      const Tensor& vocabulary,
      const Targets& targets,
      const Tensor& weights = {},
      double label_smoothing = 0) const;
  /// [B, T, C] -> [B, T, V], in the type of `hidden`
  virtual Tensor logits(const Tensor& hidden, const Tensor& vocabulary) const;
  /// Returns the scores of the targets, without gradients.
  virtual Scores scores(
      const Tensor& hidden, const Tensor& vocabulary, const Targets& targets) const;

 protected:
  /// Returns the logits for this rank's rows of the vocabulary.
  Tensor logits_of(const Tensor& hidden, const Tensor& vocabulary) const;
  /// Converts the targets and the weights of loss() to options for the rows [B T, C] of `hidden`.
  ops::TokenLossOptions loss_options(
      const Targets& targets, const Tensor& weights, const Tensor& hidden) const;
  /// Reshapes flat token scores to [B, T] and fills in the distributions' scores from their
  /// `divergences`.
  static Scores scores_of(
      const ops::TokenScores& tokens, const Targets& targets, const Tensor& divergences);
};

/// Head without parameters. The score of a target is minus the mean squared distance between the
/// hidden state and the target state, in float32. Target states are Targets::distributions.states,
/// [B, T, C] or broadcastable to it. Throws Error (kInternal) if the targets have no states.
struct StateHead final : Head {
  Tensor loss(
      const Tensor& hidden,
      const Tensor& vocabulary,
      const Targets& targets,
      const Tensor& weights,
      double label_smoothing) const override;
  Tensor logits(const Tensor& hidden, const Tensor& vocabulary) const override;
  Scores scores(
      const Tensor& hidden, const Tensor& vocabulary, const Targets& targets) const override;
};

}  // namespace lockstep::nn
