// Creates a model and allocates its parameters.
#include <ATen/ATen.h>

#include "base/error.h"
#include "base/format.h"
#include "model/description.h"
#include "nn/families.h"
#include "nn/language_model.h"

namespace lockstep::nn {
namespace {

Tensor allocate(const model::ParameterSpec& spec, at::TensorOptions options) {
  try {
    return at::empty(spec.shape, spec.is_float32 ? options.dtype(at::kFloat) : options)
        .set_requires_grad(spec.learns);
  } catch (const c10::Error& error) {
    throw Error(
        ErrorKind::kOutOfMemory,
        fmt::format(
            "cannot allocate {} ({}, {}) on {}: {}",
            spec.name,
            fmt::join(spec.shape, "x"),
            spec.is_float32 ? "Float" : c10::toString(c10::typeMetaToScalarType(options.dtype())),
            options.device().str(),
            error.what_without_backtrace()),
        "use a smaller model or a smaller type");
  }
}

/// Allocates the parameters that the model's description lists, without initializing them.
void allocate_parameters(LanguageModel& model, at::TensorOptions options) {
  model.visit_slots(each_layer([&](const SlotName& name, Layer& layer) {
    layer.visit_parameters([&](const Parameter& parameter) {
      const auto found = model.specs.find(name.parameter(parameter.name));
      if (found != model.specs.end()) {
        parameter.value = allocate(found->second, options);
      }
    });
  }));
}

ModelPart checked(const model::ModelConfig& config, ModelPart part) {
  if (part.layers < 0) {
    part.layers = config.layers - part.first_layer;
  }
  if (part.first_layer < 0 || part.layers < 0 || part.first_layer + part.layers > config.layers) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "layers {} to {} do not exist in a model of {} layers",
            part.first_layer,
            part.first_layer + part.layers - 1,
            config.layers));
  }
  return part;
}

}  // namespace

std::shared_ptr<Attention> make_attention(const model::ModelConfig& config, int64_t layer) {
  auto attention = std::make_shared<Attention>();
  attention->causal = !config.bidirectional;
  attention->scale = config.attention_scale(layer);
  attention->cap = config.score_cap;
  attention->window = config.sliding_windows.at(static_cast<size_t>(layer));
  attention->dropout = config.attention_dropout;
  attention->upcast = config.upcast_attention;
  attention->layer = layer;
  attention->site = dropout_site("attention", layer);
  return attention;
}

std::shared_ptr<Dropout> make_dropout(double probability, std::string_view role, int64_t layer) {
  auto dropout = std::make_shared<Dropout>();
  dropout->probability = probability;
  dropout->site = dropout_site(role, layer);
  return dropout;
}

namespace {

std::shared_ptr<Block> make_block(const model::ModelConfig& config, int64_t layer) {
  switch (config.family) {
    case model::Family::kGpt2:
      return make_gpt2_block(config, layer);
    case model::Family::kT5:
      return make_t5_block(config, layer);
    default:
      break;
  }
  return make_decoder_block(config, layer);
}

}  // namespace

std::unique_ptr<LanguageModel> make_model(
    const model::ModelConfig& config, at::ScalarType dtype, at::Device device, ModelPart part) {
  part = checked(config, part);
  std::vector<std::shared_ptr<Block>> blocks;
  for (int64_t layer = part.first_layer; layer < part.first_layer + part.layers; ++layer) {
    blocks.push_back(make_block(config, layer));
  }
  auto result = config.family == model::Family::kT5 ? make_t5(config, part, std::move(blocks))
                : config.bidirectional
                    ? make_encoder(config, part, std::move(blocks))
                    : std::make_unique<LanguageModel>(config, part, std::move(blocks));
  allocate_parameters(*result, at::TensorOptions().dtype(dtype).device(device));
  return result;
}

}  // namespace lockstep::nn
