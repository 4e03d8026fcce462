// Counts the parameters of a model description.
#include "plan/workload/model_sizes.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "model/description.h"

namespace lockstep::plan {

namespace {

std::vector<model::LayerSpec> layers_of(const model::ModelConfig& model, BlockKind kind) {
  switch (kind) {
    case BlockKind::kEncoder:
      return model::block_layers(model, 0);
    case BlockKind::kEncoderEnd:
      return model::block_layers(model, model.encoder_layers - 1);
    case BlockKind::kDecoder:
    case BlockKind::kCrossDecoder:
    case BlockKind::kSparseDecoder:
      break;
  }
  int64_t block = model.encoder_layers;
  while (model.has_experts(block) != (kind == BlockKind::kSparseDecoder)) {
    ++block;
  }
  return model::block_layers(model, block);
}

double elements_of(const std::vector<model::LayerSpec>& layers) {
  double sum = 0;
  for (const model::LayerSpec& layer : layers) {
    sum += static_cast<double>(layer.elements());
  }
  return sum;
}

LinearSizes linears_of(
    const model::ModelConfig& model, const std::vector<model::LayerSpec>& layers) {
  LinearSizes sizes;
  for (const model::LayerSpec& layer : layers) {
    if (layer.kind == model::LayerKind::kLinear) {
      const model::ParameterSpec& weight = layer.weight();
      const auto elements = static_cast<double>(weight.elements());
      (layer.reads_source ? sizes.of_source : sizes.own) += elements;
      sizes.experts += layer.expert >= 0 ? elements : 0;
      const bool is_active =
          layer.expert < model.experts.per_token;  // all experts have the same size
      sizes.active += layer.reads_source || !is_active ? 0 : elements;
      sizes.sides += static_cast<double>(weight.shape[0] + weight.shape[1]);
      const size_t of_outputs = layer.has_inputs_first() ? 1 : 0;
      const auto outputs = static_cast<double>(is_active ? weight.shape[of_outputs] : 0);
      const bool is_cut = weight.dims[of_outputs] != model::Dim::kHidden;
      (layer.reads_source ? sizes.source_outputs
       : is_cut           ? sizes.cut_outputs
                          : sizes.whole_outputs) += outputs;
    }
  }
  return sizes;
}

bool packs_heads(const std::vector<model::LayerSpec>& layers) {
  return std::any_of(layers.begin(), layers.end(), [](const model::LayerSpec& layer) {
    return layer.role == "query_key_value";
  });
}

double further_norms(const std::vector<model::LayerSpec>& layers) {
  const auto norms = std::count_if(layers.begin(), layers.end(), [](const auto& layer) {
    return layer.kind != model::LayerKind::kLinear &&
           layer.weight().dims.front() == model::Dim::kHidden;
  });
  return std::max(0.0, static_cast<double>(norms) - 2);
}

ModelSizes count(const model::ModelConfig& model) {
  ModelSizes sizes;
  const auto last = model::block_layers(model, model.layers - 1);
  sizes.packs_heads = packs_heads(last);
  sizes.further_norms = model.is_encoder_decoder() ? 0 : further_norms(last);
  ParameterCounts& counts = sizes.parameters;
  counts.blocks = blocks_of(model);
  visit_blocks(counts.blocks, [&](BlockKind kind, double /*count*/) {
    const std::vector<model::LayerSpec> layers = layers_of(model, kind);
    counts.block[static_cast<size_t>(kind)] = elements_of(layers);
    sizes.linears[static_cast<size_t>(kind)] = linears_of(model, layers);
  });
  for (const model::LayerSpec& layer : model::embedding_layers(model)) {
    const bool is_tokens = layer.kind == model::LayerKind::kTokenEmbedding;
    (is_tokens ? counts.embedding : counts.positions) += static_cast<double>(layer.elements());
  }
  counts.head = elements_of(model::head_layers(model));
  return sizes;
}

}  // namespace

double ParameterCounts::of(const BlockCounts& some) const {
  return sum_blocks(some, [&](BlockKind kind) { return of(kind); });
}

double ParameterCounts::largest_block() const {
  return *std::max_element(block.begin(), block.end());
}

const ModelSizes& sizes_of(const model::ModelConfig& model) {
  thread_local std::optional<std::pair<model::ModelConfig, ModelSizes>> last;
  if (!last || !(last->first == model)) {
    last.emplace(model, count(model));
  }
  return last->second;
}

}  // namespace lockstep::plan
