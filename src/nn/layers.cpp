// Layers for the slots of a model: norms, embeddings, attention, dropout and heads.
#include "nn/layers.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "nn/forward_context.h"
#include "nn/key_value_cache.h"
#include "nn/table_adapter.h"
#include "ops/attention.h"
#include "ops/biased_attention.h"
#include "ops/dropout.h"
#include "ops/linear.h"
#include "ops/products.h"
#include "ops/token_loss.h"

namespace lockstep::nn {
namespace {

ops::RmsForm form_of(NormKind kind) {
  return kind == NormKind::kRmsNormAroundOne ? ops::RmsForm::kAroundOne
         : kind == NormKind::kExactRmsNorm   ? ops::RmsForm::kExact
                                             : ops::RmsForm::kRounded;
}

}  // namespace

void Norm::visit_parameters(const ParameterFunction& function) {
  function({"weight", weight});
  function({"bias", bias});
}

void TokenEmbedding::visit_parameters(const ParameterFunction& function) {
  function({"weight", weight, 1, 0});
  if (adapter != nullptr) {
    adapter->visit(function);
  }
}

void PositionEmbedding::visit_parameters(const ParameterFunction& function) {
  function({"weight", weight});
  if (adapter != nullptr) {
    adapter->visit(function);
  }
}

void Attention::visit_parameters(const ParameterFunction& function) {
  function({"sinks", sinks});
}

void RelativePositionTable::visit_parameters(const ParameterFunction& function) {
  function({"weight", weight});
}

void HeadBias::visit_parameters(const ParameterFunction& function) {
  function({"bias", bias});
}

void Head::visit_parameters(const ParameterFunction& function) {
  function({"weight", weight, 0, 1});
  if (adapter != nullptr) {
    adapter->visit(function);
  }
}

Tensor Norm::normalize(const Tensor& x, const Tensor& scale, const Tensor& shift) const {
  return kind == NormKind::kLayerNorm ? ops::layer_norm(x, scale, shift, eps)
                                      : ops::rms_norm(x, scale, eps, form_of(kind));
}

ops::SumAndNorm Norm::forward_beside(const Tensor& x) const {
  return kind == NormKind::kLayerNorm ? ops::layer_norm_beside(x, weight, bias, eps)
                                      : ops::rms_norm_beside(x, weight, eps, form_of(kind));
}

ops::SumAndNorm Norm::add_and_normalize(
    const Tensor& x, const Tensor& residual, const Tensor& scale, const Tensor& shift) const {
  return kind == NormKind::kLayerNorm ? ops::add_layer_norm(x, residual, scale, shift, eps)
                                      : ops::add_rms_norm(x, residual, scale, eps, form_of(kind));
}

Tensor TokenEmbedding::rows_of(const Tensor& ids) const {
  const Tensor places = ids.to(weight.device());
  const Tensor found = ops::embedding(weight, places, padding_row, gradient_form);
  return adapter == nullptr ? found : adapter->look_up(weight, found, places, padding_row);
}

Tensors TokenEmbedding::rows_of_each(
    const Tensors& ids, const std::vector<const TableAdapter*>& adapters) const {
  std::vector<int64_t> lengths;
  for (const Tensor& sequence : ids) {
    lengths.push_back(sequence.size(1));
  }
  Tensors parts = rows_of(at::cat(ids, 1)).split_with_sizes(lengths, 1);
  for (size_t i = 0; i < adapters.size(); ++i) {
    if (adapters[i] != nullptr) {
      parts[i] = adapters[i]->look_up(weight, parts[i], ids[i].to(weight.device()), padding_row);
    }
  }
  return parts;
}

Tensors TokenEmbedding::forward_each(
    const Tensors& ids, const std::vector<const TableAdapter*>& adapters) const {
  return rows_of_each(ids, adapters);
}

void SequenceTokens::visit_parameters(const ParameterFunction& function) {
  if (adapter != nullptr) {
    adapter->visit(function);
  }
}

Tensor PositionEmbedding::forward(const Tensor& positions, int64_t first, int64_t length) const {
  return positions.defined() ? rows_of(positions) : rows_from(first, length);
}

Tensor PositionEmbedding::rows_of(const Tensor& positions) const {
  const Tensor places = positions.to(weight.device());
  const Tensor found = ops::embedding(weight, places);
  return adapter == nullptr ? found : adapter->look_up(weight, found, places);
}

Tensor PositionEmbedding::rows_from(int64_t first, int64_t count) const {
  const Tensor found = weight.narrow(0, first, count);
  return adapter == nullptr
             ? found
             : adapter->look_up(
                   weight,
                   found,
                   at::arange(first, first + count, weight.options().dtype(at::kLong)));
}

Tensor Attention::forward(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const ForwardContext& context) const {
  Tensor keys = key, values = value;
  if (context.cache() != nullptr) {
    std::tie(keys, values) = context.cache()->append(layer, key, value);
  }
  ops::AttentionOptions options;
  options.causal = causal;
  options.scale = scale;
  options.cap = cap;
  options.window = window;
  options.upcast = upcast;
  options.sinks = sinks;
  options.document_starts = context.inputs().document_starts;
  options.document_offsets = context.inputs().document_offsets;
  options.seen_until = context.inputs().seen_until;
  if (context.training() && dropout > 0) {
    options.dropout = dropout;
    options.dropout_keys = context.dropout_keys(site);
    options.first_head = first_head;
    options.total_heads = total_heads;
  }
  return ops::attention(query, keys, values, options).transpose(1, 2).flatten(2);  // [B, T, H D]
}

Tensor RelativePositionTable::forward() const {
  return weight.clone();
}

Tensor BiasedAttention::forward(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& bias,
    const Tensor& visible,
    const ForwardContext& context) const {
  ops::BiasedAttentionOptions options;
  if (context.training() && dropout > 0) {
    options.dropout = dropout;
    options.dropout_keys = context.dropout_keys(site);
    options.first_head = first_head;
    options.total_heads = total_heads;
  }
  return ops::biased_attention(query, key, value, bias, visible, options)
      .transpose(1, 2)
      .flatten(2);  // [B, T, H D]
}

Tensor Dropout::forward(const Tensor& x, const ForwardContext& context) const {
  return apply(x, draw(context));
}

Tensor Dropout::draw(const ForwardContext& context) const {
  return context.training() && probability > 0 ? context.dropout_keys(site) : Tensor();
}

Tensor Dropout::apply(const Tensor& x, const Tensor& keys) const {
  return keys.defined() ? masked(x, keys) : x;
}

Tensor Dropout::masked(const Tensor& x, const Tensor& keys) const {
  return ops::dropout_of_tokens(x, probability, keys);
}

Tensor EmbeddingNoise::forward(const Tensor& x, const ForwardContext& context) const {
  const double bound = context.inputs().embedding_noise;
  return bound > 0 ? noisy(x, bound, context.dropout_keys(site)) : x;
}
Tensor EmbeddingNoise::noisy(const Tensor& x, double bound, const Tensor& keys) const {
  return ops::add_noise_to_tokens(x, bound, keys);
}

ops::TokenLossOptions Head::loss_options(
    const Targets& targets, const Tensor& weights, const Tensor& hidden) const {
  const c10::Device device = hidden.device();
  ops::TokenLossOptions options;
  options.softcap = cap;
  if (weights.defined()) {
    options.row_weights = weights.expand_as(targets.tokens).flatten();
  }
  if (const Distributions& reference = targets.distributions; reference.positions.defined()) {
    if (!reference.are_own && !reference.states.defined()) {
      throw Error(ErrorKind::kInternal, "no reference has set the target distributions");
    }
    options.distributions.rows = reference.positions.flatten().to(device);
    options.distributions.is_own = reference.are_own;
    if (!reference.are_own) {
      options.distributions.hidden = reference.states.flatten(0, 1);
      options.distributions.weight = reference.vocabulary;
    }
    if (const Tensor& lowered = reference.lowered; lowered.defined()) {
      options.distributions.tokens = targets.tokens.flatten().to(device).clamp_min(0);
      options.distributions.lowered = lowered.flatten().to(
          device, hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    }
  }
  if (const Tensor& level = targets.distributions.level; level.defined()) {
    options.distributions.level = level.flatten().to(device);
  }
  return options;
}

Scores Head::scores_of(
    const ops::TokenScores& tokens, const Targets& targets, const Tensor& divergences) {
  Tensor log_likelihoods = tokens.log_likelihoods, likeliest = tokens.likeliest;
  if (divergences.defined()) {
    const Tensor compared = targets.distributions.all().flatten().to(divergences.device());
    log_likelihoods = at::where(compared, -divergences, log_likelihoods);
    likeliest = likeliest.logical_and(compared.logical_not());
  }
  return {log_likelihoods.view_as(targets.tokens), likeliest.view_as(targets.tokens)};
}

Tensor Head::loss(
    const Tensor& hidden,
    const Tensor& vocabulary,
    const Targets& targets,
    const Tensor& weights,
    double label_smoothing) const {
  ops::TokenLossOptions options = loss_options(targets, weights, hidden);
  options.label_smoothing = label_smoothing;
  return ops::token_loss(
      hidden.flatten(0, 1), vocabulary, targets.tokens.flatten().to(hidden.device()), options);
}

Tensor Head::logits(const Tensor& hidden, const Tensor& vocabulary) const {
  return logits_of(hidden, vocabulary);
}

Tensor Head::logits_of(const Tensor& hidden, const Tensor& vocabulary) const {
  const Tensor logits = at::GradMode::is_enabled()
                            ? ops::matrix_products(hidden, vocabulary.t())
                            : ops::linear(hidden, vocabulary, std::nullopt, WeightLayout::kOutIn);
  return cap > 0 ? at::tanh(logits / cap) * cap : logits;
}

Scores Head::scores(const Tensor& hidden, const Tensor& vocabulary, const Targets& targets) const {
  const Tensor rows = hidden.flatten(0, 1);
  const ops::TokenLossOptions options = loss_options(targets, {}, hidden);
  return scores_of(
      ops::token_scores(rows, vocabulary, targets.tokens.flatten().to(hidden.device()), cap),
      targets,
      options.distributions.defined() ? ops::token_divergences(rows, vocabulary, options)
                                      : Tensor());
}

namespace {

/// Returns the distances at the targets, and 0 elsewhere: [B, T].
Tensor distances(const Tensor& hidden, const Targets& targets) {
  const Tensor& states = targets.distributions.states;
  if (!states.defined()) {
    throw Error(ErrorKind::kInternal, "no reference has set the target states");
  }
  const Tensor of_all =
      (hidden.to(at::kFloat) - states.to(hidden.device(), at::kFloat)).square().mean(-1);
  return of_all.masked_fill(targets.tokens.eq(ops::kIgnoredTarget).to(hidden.device()), 0);
}

}  // namespace

Tensor StateHead::loss(
    const Tensor& hidden,
    const Tensor& /*vocabulary*/,
    const Targets& targets,
    const Tensor& weights,
    double /*label_smoothing*/) const {
  const Tensor each = distances(hidden, targets);
  return (weights.defined() ? each * weights.to(each.device(), at::kFloat) : each).sum();
}

Tensor StateHead::logits(const Tensor& /*hidden*/, const Tensor& /*vocabulary*/) const {
  throw Error(ErrorKind::kInternal, "a truncated model that returns hidden states has no logits");
}

Scores StateHead::scores(
    const Tensor& hidden, const Tensor& /*vocabulary*/, const Targets& targets) const {
  const at::NoGradGuard no_gradient;
  const Tensor each = distances(hidden, targets);
  return {-each, at::zeros_like(each, at::kBool)};
}

}  // namespace lockstep::nn
