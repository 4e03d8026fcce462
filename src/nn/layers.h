// What stands in a model's slots. No rank and no collective: a strategy swaps a slot's layer for
// one of its own. Parameters have the layout of Hugging Face's files.
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
/// What a unit of a model takes and gives (nn/language_model.h says what stands where).
using Tensors = std::vector<Tensor>;

class ForwardContext;
struct TableAdapter;

/// A layer with any number of parameters.
struct Layer {
  virtual ~Layer() = default;
  /// In the order of use.
  virtual void visit_parameters(const ParameterFunction& function) = 0;
};

/// y = x W + b.
struct Linear : Layer {
  explicit Linear(std::shared_ptr<LinearKernel> product) : product_(std::move(product)) {}
  /// A dense one.
  explicit Linear(WeightLayout layout) : Linear(std::make_shared<DenseLinearKernel>(layout)) {}
  /// The inner seam, for what changes how the product is made whatever stands in the slot: deferred
  /// weight gradients, low-rank factors, packed weights. May be replaced.
  virtual std::shared_ptr<LinearKernel>& product() { return product_; }
  /// [..., in] -> [..., out]; of a pass, whose product may draw at random.
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
  /// x + residual, and forward() of it: in one pass.
  virtual ops::SumAndNorm add_forward(const Tensor& x, const Tensor& residual) const {
    return add_and_normalize(x, residual, weight, bias);
  }
  /// x itself, for what uses it beside its norm, and forward() of it: in the backward pass their
  /// gradients are added by the norm.
  virtual ops::SumAndNorm forward_beside(const Tensor& x) const;
  /// Over the last dim, statistics in float32; for a layer that shares its parameters in its own
  /// way.
  Tensor normalize(const Tensor& x, const Tensor& scale, const Tensor& shift) const;
  ops::SumAndNorm add_and_normalize(
      const Tensor& x, const Tensor& residual, const Tensor& scale, const Tensor& shift) const;
};

/// Where what a norm gives goes to projections: the place between, for strategies to enter a region
/// of sharded layers. It has no parameters.
struct RegionBoundary {
  virtual ~RegionBoundary() = default;
  /// x, of any shape
  virtual Tensor forward(const Tensor& x) const { return x; }
};

struct TokenEmbedding : Layer {
  Tensor weight;
  int64_t padding_row = -1;  // gets no gradient from look-ups; -1: no such row
  ops::EmbeddingGradient gradient_form = ops::EmbeddingGradient::kTable;
  std::shared_ptr<TableAdapter> adapter;  // null: none
  /// ids [B, T] int64 -> [B, T, C]
  virtual Tensor forward(const Tensor& ids) const { return rows_of(ids); }
  /// Of several sequences [B, T_i] by one look-up, so that the weight's gradient is made once ->
  /// [B, T_i, C] each. Beside it each may have an adapter of its own: one for each, or none.
  virtual Tensors forward_each(
      const Tensors& ids, const std::vector<const TableAdapter*>& adapters = {}) const;
  void visit_parameters(const ParameterFunction& function) override;

 protected:
  /// Of ids that are all here, with the adapter.
  Tensor rows_of(const Tensor& ids) const;
  /// The same of several sequences, with adapters of their own.
  Tensors rows_of_each(const Tensors& ids, const std::vector<const TableAdapter*>& adapters) const;
};

/// What stands beside the table for one of the sequences that it is read for.
struct SequenceTokens : Layer {
  std::shared_ptr<TableAdapter> adapter;  // null: nothing
  void visit_parameters(const ParameterFunction& function) override;
};

struct PositionEmbedding : Layer {
  Tensor weight;
  std::shared_ptr<TableAdapter> adapter;  // null: none
  void visit_parameters(const ParameterFunction& function) override;
  /// `positions` [B, T] int64 -> [B, T, C]; undefined: `first`, `first` + 1, ... -> [T, C]
  virtual Tensor forward(const Tensor& positions, int64_t first, int64_t length) const;

 protected:
  /// With the adapter.
  Tensor rows_of(const Tensor& positions) const;
  Tensor rows_from(int64_t first, int64_t count) const;
};

/// The attention itself, between the projections.
struct Attention : Layer {
  Tensor sinks;        // [H], of the heads here: ops::AttentionOptions. Undefined: none
  bool causal = true;  // else a query sees every key of its document
  double scale = 1;
  double cap = 0;       // of the scores: ops::AttentionOptions
  int64_t window = 0;   // 0: none
  double dropout = 0;   // of the probabilities, in training
  bool upcast = false;  // scores in float32
  int64_t layer = 0;
  int64_t site = 0;  // of that dropout: dropout_site
  int64_t first_head =
      0;  // where a rank holds some of the heads: the first query head that it holds
  int64_t total_heads = 0;  // of the whole layer; 0: those given
  void visit_parameters(const ParameterFunction& function) override;
  /// query [B, H, T, D]; key and value [B, Hkv, T, D], H a multiple of Hkv; positions rotated
  /// already. Returns [B, T, H D]. With a cache in the context, key and value are appended to it
  /// and all of it is attended to.
  virtual Tensor forward(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const ForwardContext& context) const;
};

/// The table of relative positions of a stack of blocks: weight [buckets, H]. Blocks do not hold
/// it; it goes to them with the activations, so that it is one parameter of one unit.
struct RelativePositionTable : Layer {
  Tensor weight;
  void visit_parameters(const ParameterFunction& function) override;
  /// The table as an activation, in memory of its own: the weight's may be gone when it is used.
  virtual Tensor forward() const;
};

/// Attention with a bias of its scores, by the distance of key and query, and with a mask in place
/// of causality. It has no parameters.
struct BiasedAttention {
  double dropout = 0;  // of the probabilities, in training
  int64_t site = 0;    // of that dropout: dropout_site
  int64_t first_head =
      0;  // where a rank holds some of the heads: the first query head that it holds
  int64_t total_heads = 0;  // of the whole layer; 0: those given
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

/// Dropout of activations [B, T, C] in training.
struct Dropout {
  double probability = 0;
  int64_t site = 0;  // distinguishes the dropouts of a model: dropout_site
  virtual ~Dropout() = default;
  Tensor forward(const Tensor& x, const ForwardContext& context) const;
  /// The keys of the mask's rows, [B] int64 on the CPU; undefined where nothing is dropped.
  Tensor draw(const ForwardContext& context) const;
  /// x, or a gradient, under the mask of these keys; x itself where they are undefined.
  Tensor apply(const Tensor& x, const Tensor& keys) const;

 protected:
  virtual Tensor masked(const Tensor& x, const Tensor& keys) const;
};

/// A number that is added to each logit: [V], or of classes.
struct HeadBias : Layer {
  Tensor bias;
  void visit_parameters(const ParameterFunction& function) override;
};

/// From the last hidden states to scores of targets and to a loss: over the vocabulary, or over a
/// row's classes, which are a small one. `weight` is defined where the head is not tied;
/// `vocabulary` is the weight to use, [V, C].
struct Head : Layer {
  Tensor weight;
  double cap = 0;                         // logits become cap * tanh(logit / cap); 0: they stay
  std::shared_ptr<TableAdapter> adapter;  // null: none, but for that of a tied embedding
  void visit_parameters(const ParameterFunction& function) override;
  /// hidden [B, T, C] -> the SUM of weight * -score over the targets, a float32 scalar; the score
  /// is log p of a token, and minus the loss of a distribution. The weights [B, T] or [B, 1]
  /// are constants; undefined: all are one. A share of each token may be spread over the vocabulary
  /// (ops::TokenLossOptions::label_smoothing).
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
  /// Of the rows of the vocabulary that are here.
  Tensor logits_of(const Tensor& hidden, const Tensor& vocabulary) const;
  /// What the targets, and the weights of loss(), say of rows [B T, C] on a device.
  ops::TokenLossOptions loss_options(
      const Targets& targets, const Tensor& weights, c10::Device device) const;
  /// The scores of tokens, flat, as [B, T], and those of distributions by `divergences` of them.
  static Scores scores_of(
      const ops::TokenScores& tokens, const Targets& targets, const Tensor& divergences);
};

/// A head without parameters: the score of a target is minus the mean squared distance of the
/// hidden state there to the state that it is to be (Targets::distributions.states, [B, T, C] or
/// broadcasting to it), in float32. Error (kInternal): targets without states.
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
