// Products that are not dense: low-rank factors beside one, and a double of what quantization puts
// into linears.
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

/// A matrix of int8 with a scale a row, which nobody trains, and a bias, which somebody may.
class PackedDouble final : public nn::Product {
 public:
  Tensor codes, scales, bias;  // [out, in] int8, [out], [out]

  Tensor weight() const { return codes.to(scales.scalar_type()) * scales.unsqueeze(1) / 100; }
  Tensor forward(const Tensor& x, const Tensor& /*drawn*/) const override {
    const Tensor y = x.matmul(weight().t());
    return bias.defined() ? y + bias : y;
  }
  Tensor input_gradient(const Tensor& y_gradient, const Tensor& /*drawn*/) const override {
    return y_gradient.matmul(weight());
  }
  void accumulate_weight_gradients(
      const Tensor& y_gradient, const Tensor& /*x*/, const Tensor& /*drawn*/) const override {
    nn::accumulate_gradient(bias, y_gradient.flatten(0, -2).sum(0));
  }
  bool is_trained() const override { return bias.defined() && bias.requires_grad(); }
  void visit_parameters(const nn::ParameterFunction& function) override {
    function({"weight", codes, 0, 1});
    function({"weight_scale", scales, 0, -1});
    function({"bias", bias, 0, -1});
  }
  Tensor take_bias() override { return std::exchange(bias, Tensor()); }
};

/// The matrix of a dense product, with where its dims are.
struct DenseWeight {
  Tensor value;
  int64_t out = 0, in = 0;
};
inline DenseWeight weight_of(nn::Product& product) {
  DenseWeight weight;
  product.visit_parameters([&](const nn::Parameter& parameter) {
    if (parameter.name == "weight") {
      weight = {
          parameter.value, parameter.value.size(parameter.out), parameter.value.size(parameter.in)};
    }
  });
  return weight;
}

using Adapt = std::function<void(nn::LanguageModel&)>;

inline nn::SlotFunction each_linear(
    std::function<void(const nn::SlotName&, nn::Linear&)> function) {
  return nn::each<nn::Linear>([function = std::move(function)](
                                  const nn::SlotName& name, std::shared_ptr<nn::Linear>& linear) {
    function(name, *linear);
  });
}

inline void add_spec(
    nn::LanguageModel& model,
    const std::string& name,
    std::vector<int64_t> shape,
    double deviation) {
  model.specs[name] = {
      name, std::move(shape), {model::Initialization::Kind::kNormal, deviation, -1}, false, 0};
}

/// Low-rank factors beside every linear, whose own weights are trained too, or frozen; with dropout
/// of what they read, and none of the two zero.
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

/// Packed weights in every linear.
inline void adapt_packed(nn::LanguageModel& model) {
  model.visit_slots(each_linear([&](const nn::SlotName& name, nn::Linear& linear) {
    const DenseWeight weight = weight_of(*linear.product());
    const auto options = weight.value.options().requires_grad(false);
    auto product = std::make_shared<PackedDouble>();
    product->codes = at::empty({weight.out, weight.in}, options.dtype(at::kChar));
    product->scales = at::empty({weight.out}, options);
    product->bias = linear.product()->take_bias();
    add_spec(model, name.parameter("weight"), {weight.out, weight.in}, 0.1);
    add_spec(model, name.parameter("weight_scale"), {weight.out}, 1);
    linear.product() = product;
  }));
}

/// Values for all that an adapted model has: integers are those of a hundred times the draw.
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
    const bool is_packed = values.scalar_type() == at::kChar;
    values.view({-1}).copy_(is_packed ? (drawn * 100).round().clamp(-127, 127) : drawn);
  };
}

}  // namespace lockstep::parallel::testing
