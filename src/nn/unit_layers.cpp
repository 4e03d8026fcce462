// Creates the layers of a unit from the model's description.
#include "nn/unit_layers.h"

#include <algorithm>
#include <string>
#include <utility>

namespace lockstep::nn {
namespace {

NormKind norm_kind(model::LayerKind kind) {
  switch (kind) {
    case model::LayerKind::kLayerNorm:
      return NormKind::kLayerNorm;
    case model::LayerKind::kExactRmsNorm:
      return NormKind::kExactRmsNorm;
    case model::LayerKind::kRmsNormAroundOne:
      return NormKind::kRmsNormAroundOne;
    default:
      return NormKind::kRmsNorm;
  }
}

}  // namespace

UnitLayers::UnitLayers(
    const model::ModelConfig& config, std::vector<model::LayerSpec> specs, int64_t layer)
    : specs_(std::move(specs)),
      layer_(layer),
      norm_eps_(config.norm_eps) {}

UnitLayers::UnitLayers(const model::ModelConfig& config, int64_t layer)
    : UnitLayers(config, model::block_layers(config, layer), layer) {}

const model::LayerSpec* UnitLayers::find(std::string_view role) const {
  for (const model::LayerSpec& spec : specs_) {
    if (spec.role == role) {
      return &spec;
    }
  }
  return nullptr;
}

std::shared_ptr<Linear> UnitLayers::linear(std::string_view role) const {
  const model::LayerSpec* const spec = find(role);
  return spec == nullptr ? nullptr
                         : std::make_shared<Linear>(
                               spec->in_first ? WeightLayout::kInOut : WeightLayout::kOutIn);
}

std::shared_ptr<Norm> UnitLayers::norm(std::string_view role) const {
  const model::LayerSpec* const spec = find(role);
  return spec == nullptr ? nullptr : std::make_shared<Norm>(norm_kind(spec->kind), norm_eps_);
}

SlotName UnitLayers::name(std::string_view role, int64_t expert) const {
  const auto found = std::ranges::find_if(specs_, [&](const model::LayerSpec& spec) {
    return spec.expert == expert && spec.role == role;
  });
  return {std::string(role), layer_, found == specs_.end() ? "" : found->prefix};
}

SlotName UnitLayers::name(std::string_view role) const {
  const model::LayerSpec* const spec = find(role);
  return {std::string(role), layer_, spec == nullptr ? "" : spec->prefix};
}

}  // namespace lockstep::nn
