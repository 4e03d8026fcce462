#include "nn/low_rank.h"

#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "base/counter_random.h"
#include "nn/decomposed.h"
#include "nn/experts.h"
#include "nn/table_adapter.h"
#include "ops/linear.h"

namespace lockstep::nn {
namespace {

constexpr auto kOutIn = WeightLayout::kOutIn;

Tensor times_factor(const Tensor& x, const Tensor& factor) {
  return ops::linear(x, factor, std::nullopt, kOutIn);
}

Tensor gradient_of(const Tensor& y_gradient, const Tensor& x) {
  return ops::linear_weight_gradients(y_gradient, x, kOutIn, ops::BiasGradient::kNone).weight;
}

}  // namespace

Tensor LowRankFactors::rows_of(const Tensor& x, const Tensor& drawn) const {
  return dropout->apply(x.to(a.scalar_type()), drawn);
}

Tensor LowRankFactors::added(const Tensor& rows) const {
  return times_factor(times_factor(rows, a) * scale, b);
}

Tensor LowRankFactors::inner_gradient(const Tensor& gradient) const {
  return ops::linear_input_gradient(gradient, b.detach(), kOutIn) * scale;
}

Tensor LowRankFactors::input_gradient(const Tensor& gradient) const {
  return ops::linear_input_gradient(inner_gradient(gradient), a.detach(), kOutIn);
}

void LowRankFactors::accumulate_weight_gradients(const Tensor& gradient, const Tensor& rows) const {
  if (a.requires_grad()) {
    accumulate_gradient(a, gradient_of(inner_gradient(gradient), rows));
  }
  if (b.requires_grad()) {
    accumulate_gradient(b, gradient_of(gradient, times_factor(rows, a.detach()) * scale));
  }
}

bool LowRankFactors::are_trained() const {
  return a.requires_grad() || b.requires_grad();
}

void LowRankFactors::visit(const ParameterFunction& function) {
  function({"lora_A.weight", a, -1, 1});
  function({"lora_B.weight", b, 0, -1});
}

LowRankProduct::LowRankProduct(
    std::shared_ptr<Product> base, double scale, std::shared_ptr<Dropout> dropout)
    : base_(std::move(base)),
      factors_{.scale = scale, .dropout = std::move(dropout), .a = {}, .b = {}} {}

Tensor LowRankProduct::draw(const ForwardContext& context) const {
  return factors_.dropout->draw(context);
}

Tensor LowRankProduct::forward(const Tensor& x, const Tensor& drawn) const {
  const Tensor y = base_->forward(x, {});
  if (!factors_.are_on) {
    return y;
  }
  return (y + factors_.added(factors_.rows_of(x, drawn))).to(y.scalar_type());
}

Tensor LowRankProduct::input_gradient(const Tensor& y_gradient, const Tensor& drawn) const {
  const Tensor x_gradient = base_->input_gradient(y_gradient, {});
  const Tensor added = factors_.input_gradient(y_gradient.to(factors_.b.scalar_type()));
  return (x_gradient + factors_.dropout->apply(added, drawn)).to(x_gradient.scalar_type());
}

void LowRankProduct::accumulate_weight_gradients(
    const Tensor& y_gradient, const Tensor& x, const Tensor& drawn) const {
  if (base_->is_trained()) {
    base_->accumulate_weight_gradients(y_gradient, x, {});
  }
  factors_.accumulate_weight_gradients(
      y_gradient.to(factors_.b.scalar_type()), factors_.rows_of(x, drawn));
}

void LowRankProduct::visit_parameters(const ParameterFunction& function) {
  base_->visit_parameters(function);
  factors_.visit(function);
}

namespace {

/// A dropout of its own for each layer, by the layer's name: the same under every plan.
std::shared_ptr<Dropout> dropout_of(const model::Adapter& adapter, const std::string& prefix) {
  auto dropout = std::make_shared<Dropout>();
  dropout->probability = adapter.dropout;
  dropout->site = static_cast<int64_t>(hash_name(prefix + ".lora_dropout"));
  return dropout;
}

std::shared_ptr<Product> adapted(
    const std::shared_ptr<Product>& base,
    const model::Adapter& adapter,
    const std::string& prefix) {
  const auto dropout = dropout_of(adapter, prefix);
  if (adapter.decomposes) {
    return std::make_shared<DecomposedProduct>(base, adapter.scale, dropout);
  }
  return std::make_shared<LowRankProduct>(base, adapter.scale, dropout);
}

std::shared_ptr<TableAdapter> adapted_table(
    const model::Adapter& adapter, const std::string& prefix, bool of_embedding) {
  auto table = std::make_shared<TableAdapter>();
  table->of_embedding = of_embedding;
  table->of_tied_head = adapter.of_tied_head;
  table->decomposes = adapter.decomposes;
  table->scale = adapter.scale;
  table->dropout = dropout_of(adapter, prefix);
  table->tokens = adapter.tokens;
  return table;
}

/// Gives a layer that has adapters their parameters, on the device of its others, of a tied head on
/// the table's.
void allocate(const SlotName& name, Layer& layer, const LanguageModel& model) {
  at::TensorOptions options;
  if (model.tokens != nullptr) {
    options = options.device(model.tokens->weight.device());
  }
  layer.visit_parameters([&](const Parameter& parameter) {
    if (parameter.value.defined()) {
      options = options.device(parameter.value.device());
      return;
    }
    const auto found = model.specs.find(name.parameter(parameter.name));
    if (found != model.specs.end()) {
      parameter.value =
          at::empty(found->second.shape, options.dtype(at::kFloat)).set_requires_grad(true);
    }
  });
}

/// Puts each where the layer of its name stands.
void put_adapters(LanguageModel& model, const model::Adapters& adapters) {
  model.visit_slots([&](const SlotName& name, const Slot& slot) {
    if (const auto* exchange = slot.as<ExpertExchange>()) {
      (*exchange)->experts_drop = adapters.config.lora_dropout > 0;
    }
    const auto found = adapters.of_layers.find(name.prefix);
    if (found == adapters.of_layers.end()) {
      return;
    }
    const model::Adapter& adapter = found->second;
    if (const auto* linear = slot.as<Linear>()) {
      auto& product = (*linear)->product();
      product = adapted(product, adapter, name.prefix);
    } else if (const auto* tokens = slot.as<TokenEmbedding>()) {
      if (!model.part().embedding && !adapter.of_tied_head) {
        return;  // this part has the table for its head alone
      }
      (*tokens)->adapter = adapted_table(adapter, name.prefix, /*of_embedding=*/true);
    } else if (const auto* positions = slot.as<PositionEmbedding>()) {
      (*positions)->adapter = adapted_table(adapter, name.prefix, /*of_embedding=*/true);
    } else if (const auto* head = slot.as<Head>()) {
      (*head)->adapter = adapted_table(adapter, name.prefix, /*of_embedding=*/false);
    } else {
      return;
    }
    allocate(name, *slot.layer(), model);
  });
}

}  // namespace

void add_adapters(LanguageModel& model, const model::Adapters& adapters) {
  model.visit_parameters([&](const std::string& name, Tensor& parameter) {
    parameter.set_requires_grad(adapters.trained.count(name) > 0);
  });
  for (const auto& [prefix, adapter] : adapters.of_layers) {
    const auto layer = model.layers.find(prefix);  // a tied head has none
    for (const model::ParameterSpec& parameter : adapter.parameters) {
      if (layer != model.layers.end()) {
        layer->second.parameters.push_back(parameter);
      }
      if (adapter.of_tied_head) {
        model.shared_with_head.insert(parameter.name);
      }
      model.specs.insert_or_assign(parameter.name, parameter);
    }
  }
  put_adapters(model, adapters);
}

void set_adapters(LanguageModel& model, bool are_on) {
  model.visit_slots([&](const SlotName&, const Slot& slot) {
    const auto set = [&](const std::shared_ptr<TableAdapter>& adapter) {
      if (adapter != nullptr) {
        adapter->are_on = are_on;
      }
    };
    if (const auto* linear = slot.as<Linear>()) {
      (*linear)->product()->set_adapted(are_on);
    } else if (const auto* tokens = slot.as<TokenEmbedding>()) {
      set((*tokens)->adapter);
    } else if (const auto* positions = slot.as<PositionEmbedding>()) {
      set((*positions)->adapter);
    } else if (const auto* head = slot.as<Head>()) {
      set((*head)->adapter);
    }
  });
}

}  // namespace lockstep::nn
