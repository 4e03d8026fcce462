// Linear kernels that are not dense, for tests: LoRA and packed weights.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "model/adapters.h"
#include "nn/initialize.h"
#include "nn/low_rank.h"
#include "parallel/parallelize.h"

namespace lockstep::parallel::testing {

using Adapt = std::function<void(nn::LanguageModel&)>;

/// Adds LoRA to every linear, with trained or frozen base weights. Uses input dropout and nonzero
/// factors.
enum class Base { kTrained, kFrozen };
inline void adapt_low_rank(
    nn::LanguageModel& model, Base base, const model::LoraConfig& with = {}) {
  model::LoraConfig config = with;
  config.r = 3;
  config.lora_alpha = 4.5;
  config.lora_dropout = 0.2;
  config.targets_all_linear = true;
  config.init_lora_weights = "false";
  nn::add_adapters(
      model, model::resolve_adapters(config, model.config(), model::AdapterOrigin::kNew));
  if (base == Base::kTrained) {
    model.visit_parameters(
        [](const std::string&, Tensor& parameter) { parameter.set_requires_grad(true); });
  }
}

/// Initial values for all parameters of an adapted model.
inline ModelSpec::Fill fill_adapted(const model::ModelConfig& config, const Adapt& adapt) {
  const auto model = nn::make_model(config, at::kFloat, at::kMeta);
  adapt(*model);
  return [specs = model->specs](
             const std::string& name,
             const ShardedParameter& parameter,
             int64_t begin,
             const Tensor& values) {
    const Tensor drawn = at::empty({values.numel()});
    mesh::visit_runs(
        parameter.cut,
        parameter.shape,
        begin,
        begin + values.numel(),
        [&](int64_t local, int64_t whole, int64_t count) {
          nn::fill_initial(drawn.narrow(0, local - begin, count), specs.at(name), 3, whole);
        });
    values.view({-1}).copy_(drawn);
  };
}

/// Packs the weights of every linear, quantized from initial values; `adapt` adds adapters to them.
inline void pack(ModelSpec& spec, const ops::PackedFormat& format, const Adapt& adapt = nullptr) {
  nn::Packing packing;
  for (const model::LayerSpec& layer : model::describe(spec.config)) {
    if (layer.kind == model::LayerKind::kLinear) {
      packing[layer.prefix] = format;
    }
  }
  if (adapt) {
    spec.adapt = adapt;
    spec.fill = fill_adapted(spec.config, adapt);
  }
  spec.fill =
      fill_packed(spec.config, packing, quantized(spec.config, packing, spec.fill), spec.fill);
  spec.packing = std::make_shared<const nn::Packing>(std::move(packing));
}

}  // namespace lockstep::parallel::testing
