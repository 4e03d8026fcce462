// Implements descriptions of models as lists of layers and parameters.
#include "model/description.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "model/family.h"
#include "model/layer_list.h"

namespace lockstep::model {
namespace {

std::string first_weight(const std::vector<LayerSpec>& layers, LayerKind kind) {
  for (const LayerSpec& layer : layers) {
    if (layer.kind == kind) {
      return layer.weight().name;
    }
  }
  return {};
}

}  // namespace

int64_t ParameterSpec::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) {
    count *= size;
  }
  return count;
}

bool ParameterSpec::is_hidden_matrix() const {
  return unit > 0 && shape.size() == 2 && dims.size() == 2 &&
         std::none_of(dims.begin(), dims.end(), [](Dim dim) {
           return dim == Dim::kVocabulary || dim == Dim::kClasses || dim == Dim::kPositions ||
                  dim == Dim::kDistances;
         });
}

int64_t LayerSpec::elements() const {
  int64_t count = 0;
  for (const ParameterSpec& parameter : parameters) {
    count += parameter.elements();
  }
  return count;
}

std::vector<LayerSpec> embedding_layers(const ModelConfig& config) {
  LayerList list(config, LayerList::kOutsideBlocks, 0);
  keys_of(config.family).describe_embedding(list);
  return list.take();
}

std::vector<LayerSpec> block_layers(const ModelConfig& config, int64_t block) {
  LayerList list(config, block, block + 1);
  keys_of(config.family).describe_block(list, block);
  return list.take();
}

std::vector<LayerSpec> head_layers(const ModelConfig& config) {
  if (config.head.gives_states()) {
    return {};
  }
  LayerList list(config, LayerList::kOutsideBlocks, config.layers + 1);
  keys_of(config.family).describe_head(list);
  return list.take();
}

std::vector<LayerSpec> describe(const ModelConfig& config) {
  std::vector<LayerSpec> all = embedding_layers(config);
  const auto append = [&](std::vector<LayerSpec> more) {
    all.insert(
        all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  for (int64_t block = 0; block < config.layers; ++block) {
    append(block_layers(config, block));
  }
  append(head_layers(config));
  return all;
}

std::optional<LayerSpec> tied_head(const ModelConfig& config) {
  if (!config.ties_head()) {
    return std::nullopt;
  }
  ModelConfig untied = config;
  untied.tie_word_embeddings = false;
  for (LayerSpec& layer : head_layers(untied)) {
    if (layer.kind == LayerKind::kHead) {
      layer.parameters.front().name = embedding_name(config);
      return std::move(layer);
    }
  }
  return std::nullopt;
}

std::vector<LayerSpec> embeddings_of_stacks(const ModelConfig& config) {
  std::vector<LayerSpec> result;
  if (config.is_encoder_decoder()) {
    const LayerSpec shared = embedding_layers(config).front();
    const std::string body = shared.prefix.substr(0, shared.prefix.rfind('.') + 1);  // may be empty
    for (const char* stack : {"encoder", "decoder"}) {
      result.push_back(shared);
      result.back().prefix = body + stack + ".embed_tokens";
    }
  }
  return result;
}

std::vector<ParameterSpec> parameters_of(const ModelConfig& config) {
  std::vector<ParameterSpec> result;
  for (LayerSpec& layer : describe(config)) {
    result.insert(
        result.end(),
        std::make_move_iterator(layer.parameters.begin()),
        std::make_move_iterator(layer.parameters.end()));
  }
  return result;
}

std::map<std::string, ParameterSpec> parameters_by_name(const ModelConfig& config) {
  std::map<std::string, ParameterSpec> result;
  for (ParameterSpec& parameter : parameters_of(config)) {
    std::string name = parameter.name;
    result.emplace(std::move(name), std::move(parameter));
  }
  return result;
}

int64_t parameter_count(const ModelConfig& config) {
  int64_t sum = 0;
  for (const LayerSpec& layer : describe(config)) {
    sum += layer.elements();
  }
  return sum;
}

bool is_of_further_layers(const std::string& name, const ModelConfig& config) {
  const char* const prefix = keys_of(config.family).further_layers;
  if (prefix == nullptr || !name.starts_with(prefix)) {
    return false;
  }
  int64_t layer = -1;
  const char* const number = name.data() + std::string_view(prefix).size();
  return std::from_chars(number, name.data() + name.size(), layer).ec == std::errc() &&
         layer >= config.layers;
}

std::string embedding_name(const ModelConfig& config) {
  return first_weight(embedding_layers(config), LayerKind::kTokenEmbedding);
}

std::string head_name(const ModelConfig& config) {
  return config.ties_head() ? embedding_name(config)
                            : first_weight(head_layers(config), LayerKind::kHead);
}

}  // namespace lockstep::model
