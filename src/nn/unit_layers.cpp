#include "nn/unit_layers.h"

#include <string>
#include <utility>

namespace lockstep::nn {

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
  return spec == nullptr ? nullptr
                         : std::make_shared<Norm>(
                               spec->kind == model::LayerKind::kLayerNorm ? NormKind::kLayerNorm
                                                                          : NormKind::kRmsNorm,
                               norm_eps_);
}

SlotName UnitLayers::name(std::string_view role) const {
  const model::LayerSpec* const spec = find(role);
  return {std::string(role), layer_, spec == nullptr ? "" : spec->prefix};
}

}  // namespace lockstep::nn
