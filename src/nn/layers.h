// Layers that fill a model's slots. They have no notion of ranks or collectives: a parallel
// strategy replaces a slot's layer with its own. Parameters use the layout of Hugging Face
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
/// Inputs and outputs of a model unit (nn/language_model.h describes them).
using Tensors = std::vector<Tensor>;

class ForwardContext;
struct TableAdapter;

/// A layer with any number of parameters.
struct Layer {
  virtual ~Layer() = default;
  /// Visits the parameters in the order of use.
  virtual void visit_parameters(const ParameterFunction& function) = 0;
};

/// y = x W + b.
struct Linear : Layer {
  explicit Linear(std::shared_ptr<LinearKernel> product) : product_(std::move(product)) {}
  /// Creates a dense linear.
  explicit Linear(WeightLayout layout) : Linear(std::make_shared<DenseLinearKernel>(layout)) {}
  /// The kernel of this layer. Replaced by features that change the product independently of the
  /// layer in the slot: deferred weight gradients, low-rank factors, packed weights.
  virtual std::shared_ptr<LinearKernel>& product() { return product_; }
  /// [..., in] -> [..., out]. `context` is the pass, which supplies the kernel's random draws.
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
  /// Returns x + residual and its forward(), computed in one pass.
  virtual ops::SumAndNorm add_forward(const Tensor& x, const Tensor& residual) const {
    return add_and_normalize(x, residual, weight, bias);
  }
  /// Returns x and forward(x), for blocks that also use x as the residual. In the backward pass the
  /// norm adds the two gradients.
  virtual ops::SumAndNorm forward_beside(const Tensor& x) const;
  /// Normalizes over the last dim, with statistics in float32. For layers that shard the norm's
  /// parameters.
  Tensor normalize(const Tensor& x, const Tensor& scale, const Tensor& shift) const;
  ops::SumAndNorm add_and_normalize(
      const Tensor& x, const Tensor& residual, const Tensor& scale, const Tensor& shift) const;
};

/// Boundary between a norm and the projections that read its output. Strategies replace it to enter
/// a region of sharded layers. It has no parameters.
struct RegionBoundary {
  virtual ~RegionBoundary() = default;
  /// x, of any shape
  virtual Tensor forward(const Tensor& x) const { return x; }
};

struct TokenEmbedding : Layer {
  Tensor weight;
  int64_t padding_row = -1;  // row that gets no gradient from look-ups; -1: none
  ops::EmbeddingGradient gradient_form = ops::EmbeddingGradient::kTable;
  std::shared_ptr<TableAdapter> adapter;  // null: no adapter
  /// ids [B, T] int64 -> [B, T, C]
  virtual Tensor forward(const Tensor& ids) const { return rows_of(ids); }
  /// Embeds several sequences [B, T_i] with one look-up, so that the weight's gradient is computed
  /// once -> [B, T_i, C] each. `adapters` has one adapter per sequence or is empty.
  virtual Tensors forward_each(
      const Tensors& ids, const std::vector<const TableAdapter*>& adapters = {}) const;
  void visit_parameters(const ParameterFunction& function) override;

 protected:
  /// Rows of ids that are all on this rank, with the adapter applied.
  Tensor rows_of(const Tensor& ids) const;
  /// The same for several sequences, each with its own adapter.
  Tensors rows_of_each(const Tensors& ids, const std::vector<const TableAdapter*>& adapters) const;
};

/// Adapter of the embedding table for one of the sequences that share it.
struct SequenceTokens : Layer {
  std::shared_ptr<TableAdapter> adapter;  // null: no adapter
  void visit_parameters(const ParameterFunction& function) override;
};

struct PositionEmbedding : Layer {
  Tensor weight;
  std::shared_ptr<TableAdapter> adapter;  // null: no adapter
  void visit_parameters(const ParameterFunction& function) override;
  /// `positions` [B, T] int64 -> [B, T, C]; undefined: `first`, `first` + 1, ... -> [T, C]
  virtual Tensor forward(const Tensor& positions, int64_t first, int64_t length) const;

 protected:
  /// Rows with the adapter applied.
  Tensor rows_of(const Tensor& positions) const;
  Tensor rows_from(int64_t first, int64_t count) const;
};

/// The attention itself, between the projections.
struct Attention : Layer {
  Tensor sinks;  // [H], attention sinks of this rank's heads (ops::AttentionOptions), or undefined
  bool causal = true;  // if false, a query attends to every key of its document
  double scale = 1;
  double cap = 0;       // soft cap of the scores: ops::AttentionOptions
  int64_t window = 0;   // 0: no window
  double dropout = 0;   // on the probabilities, in training
  bool upcast = false;  // scores in float32
  int64_t layer = 0;
  int64_t site = 0;         // site of that dropout: dropout_site
  int64_t first_head = 0;   // index of this rank's first query head if the heads are sharded
  int64_t total_heads = 0;  // heads of the whole layer; 0: those given
  void visit_parameters(const ParameterFunction& function) override;
  /// query [B, H, T, D]; key and value [B, Hkv, T, D], H a multiple of Hkv; already rotated.
  /// Returns [B, T, H D]. If the context has a cache, key and value are appended to it and the
  /// queries attend to the whole cache.
  virtual Tensor forward(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const ForwardContext& context) const;
};

/// Table of relative positions of a stack of blocks: weight [buckets, H]. It is passed to the
/// blocks as an activation, so that it is one parameter of one unit.
struct RelativePositionTable : Layer {
  Tensor weight;
  void visit_parameters(const ParameterFunction& function) override;
  /// Returns a copy of the table as an activation: the weight may have been released when the copy
  /// is used.
  virtual Tensor forward() const;
};

/// Attention with a bias on its scores by the distance of key and query, and with an explicit mask
/// instead of causality. It has no parameters.
struct BiasedAttention {
  double dropout = 0;       // on the probabilities, in training
  int64_t site = 0;         // site of that dropout: dropout_site
  int64_t first_head = 0;   // index of this rank's first query head if the heads are sharded
  int64_t total_heads = 0;  // heads of the whole layer; 0: those given
  virtual ~BiasedAttention() = default;
  /// query [B, H, T, D]; key and value [B, H, S, D]; bias [H, T, S] or undefined; visible, bool,
  /// broadcasts to [B, H, T, S], or undefined. Returns [B, T, H D].
  virtual Tensor forward(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const Tensor& bias,
      const Tensor& visible,
      const ForwardContext& context) const;
};

/// Dropout on activations [B, T, C] in training.
struct Dropout {
  double probability = 0;
  int64_t site = 0;  // distinguishes the dropouts of a model: dropout_site
  virtual ~Dropout() = default;
  Tensor forward(const Tensor& x, const ForwardContext& context) const;
  /// Returns the keys of the mask's rows, [B] int64 on the CPU; undefined if nothing is dropped.
  Tensor draw(const ForwardContext& context) const;
  /// Applies the mask of these keys to x or to a gradient; returns x if the keys are undefined.
  Tensor apply(const Tensor& x, const Tensor& keys) const;

 protected:
  virtual Tensor masked(const Tensor& x, const Tensor& keys) const;
};

/// Bias added to the logits: [V], or one per class.
struct HeadBias : Layer {
  Tensor bias;
  void visit_parameters(const ParameterFunction& function) override;
};

/// Computes target scores and the loss from the last hidden states, over the vocabulary or, for a
/// classifier, over the classes. `weight` is defined if the head is not tied; `vocabulary` is the
/// weight to use, [V, C].
struct Head : Layer {
  Tensor weight;
  double cap = 0;                         // logits become cap * tanh(logit / cap); 0: no cap
  std::shared_ptr<TableAdapter> adapter;  // null: none, unless a tied embedding has one
  void visit_parameters(const ParameterFunction& function) override;
  /// hidden [B, T, C] -> the SUM of weight * -score over the targets, a float32 scalar. The score
  /// is log p of a token, and minus the loss of a distribution. The weights [B, T] or [B, 1] are
  /// constants; undefined: all 1. Label smoothing spreads a fraction of each target over the
  /// vocabulary (ops::TokenLossOptions::label_smoothing).
  virtual Tensor loss(
      const Tensor& hidden,
      const Tensor& vocabulary,
      const Targets& targets,
      const Tensor& weights = {},
      double label_smoothing = 0) const;
  /// [B, T, C] -> [B, T, V], in the type of `hidden`
  virtual Tensor logits(const Tensor& hidden, const Tensor& vocabulary) const;
  /// No gradient.
  virtual Scores scores(
      const Tensor& hidden, const Tensor& vocabulary, const Targets& targets) const;

 protected:
  /// Logits for this rank's rows of the vocabulary.
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
/// hidden state and the target state (Targets::distributions.states, [B, T, C] or broadcastable to
/// it), in float32. Throws Error (kInternal) if the targets have no states.
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
