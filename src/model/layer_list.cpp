// Builder of a unit's layer list.
#include "model/layer_list.h"

#include <utility>

#include "base/format.h"

namespace lockstep::model {

LayerList::LayerList(const ModelConfig& config, int64_t block, int64_t unit)
    : config_(config),
      block_(block),
      unit_(unit) {}

LayerSpec& LayerList::add(LayerKind kind, std::string_view role, const std::string& prefix) {
  LayerSpec& layer = layers_.emplace_back();
  layer.kind = kind;
  layer.role = role;
  layer.block = block_;
  layer.prefix = prefix;
  return layer;
}

void LayerList::add_weight(LayerSpec& layer, Extent rows, Extent columns) const {
  layer.parameters.push_back(
      {.name = layer.prefix + ".weight",
       .shape = {rows.size, columns.size},
       .init = {Initialization::Kind::kNormal, config_.initializer_range, -1},
       .decays = true,
       .unit = unit_,
       .dims = {rows.dim, columns.dim}});
}

void LayerList::add_vector(
    LayerSpec& layer, const char* name, Extent size, Initialization::Kind kind) const {
  layer.parameters.push_back(
      {.name = layer.prefix + name,
       .shape = {size.size},
       .init = {kind, 0, -1},
       .decays = false,
       .unit = unit_,
       .dims = {size.dim}});
}

LayerSpec& LayerList::linear(
    std::string_view role, const std::string& prefix, Extent out, Extent in, Bias bias) {
  LayerSpec& layer = add(LayerKind::kLinear, role, prefix);
  layer.in = in.dim;
  layer.out = out.dim;
  add_weight(layer, out, in);
  if (bias == Bias::kZeros) {
    add_vector(layer, ".bias", out, Initialization::Kind::kZeros);
  }
  return layer;
}

LayerSpec& LayerList::linear_in_first(
    std::string_view role, const std::string& prefix, Extent in, Extent out, Bias bias) {
  LayerSpec& layer = linear(role, prefix, out, in, bias);
  layer.in_first = true;
  ParameterSpec& weight = layer.parameters.front();
  std::swap(weight.shape[0], weight.shape[1]);
  std::swap(weight.dims[0], weight.dims[1]);
  return layer;
}

LayerSpec& LayerList::router(const std::string& prefix) {
  return table(LayerKind::kRouter, "router", prefix, experts(), hidden());
}

void LayerList::router_bias() {
  add_vector(layers_.back(), ".bias", experts(), Initialization::Kind::kNormal);
  layers_.back().parameters.back().init.deviation = config_.initializer_range;
}

void LayerList::score_correction(const char* name) {
  const std::string place = fmt::format(".{}", name);
  add_vector(layers_.back(), place.c_str(), experts(), Initialization::Kind::kZeros);
  ParameterSpec& correction = layers_.back().parameters.back();
  correction.learns = false;
  correction.is_float32 = true;
}

LayerSpec& LayerList::attention_sinks(const std::string& prefix) {
  LayerSpec& layer = add(LayerKind::kAttentionSinks, "attention", prefix);
  add_vector(layer, ".sinks", heads(), Initialization::Kind::kNormal);
  set_deviation(layer, config_.initializer_range);
  layer.parameters.front().decays = true;  // transformers' Trainer selects weight decay by name
  return layer;
}

LayerSpec& LayerList::rms_norm(
    std::string_view role, const std::string& prefix, Extent over, LayerKind kind) {
  LayerSpec& layer = add(kind, role, prefix);
  const bool around_one = kind == LayerKind::kRmsNormAroundOne;
  add_vector(
      layer,
      ".weight",
      over,
      around_one ? Initialization::Kind::kZeros : Initialization::Kind::kOnes);
  return layer;
}

LayerSpec& LayerList::layer_norm(std::string_view role, const std::string& prefix, Extent over) {
  LayerSpec& layer = add(LayerKind::kLayerNorm, role, prefix);
  add_vector(layer, ".weight", over, Initialization::Kind::kOnes);
  add_vector(layer, ".bias", over, Initialization::Kind::kZeros);
  return layer;
}

LayerSpec& LayerList::tokens(const std::string& prefix, std::string_view head) {
  LayerSpec& layer = table(
      LayerKind::kTokenEmbedding,
      "tokens",
      prefix,
      {Dim::kVocabulary, config_.vocab_size},
      hidden());
  ParameterSpec& weight = layer.parameters.front();
  weight.init.zero_row = config_.embedding_padding_row.value_or(-1);
  if (config_.ties_head()) {
    weight.aliases.push_back(std::string(head) + ".weight");
  }
  return layer;
}

LayerSpec& LayerList::table(
    LayerKind kind, std::string_view role, const std::string& prefix, Extent rows, Extent columns) {
  LayerSpec& layer = add(kind, role, prefix);
  add_weight(layer, rows, columns);
  return layer;
}

LayerSpec* LayerList::head(const std::string& prefix, const std::string& classifier) {
  if (config_.ties_head()) {
    return nullptr;
  }
  LayerSpec& layer = add(LayerKind::kHead, "head", config_.head.classifies() ? classifier : prefix);
  add_weight(layer, head_rows(), hidden());
  return &layer;
}

LayerSpec& LayerList::head_bias(const std::string& prefix) {
  LayerSpec& layer = add(LayerKind::kHeadBias, "head_bias", prefix);
  add_vector(layer, ".bias", head_rows(), Initialization::Kind::kZeros);
  return layer;
}

}  // namespace lockstep::model
