// LoRA linear kernel, its autograd nodes, and installation of adapters.
#include "nn/low_rank.h"

#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "base/counter_random.h"
#include "nn/decomposed.h"
#include "nn/experts.h"
#include "nn/table_adapter.h"

namespace lockstep::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Non-tensor state of the backward pass, stored in a capsule.
struct Beside : torch::CustomClassHolder {
  std::shared_ptr<const LinearKernel> base;
  LowRankFactors factors;  // undefined A and B
  Tensor drawn;
};

/// Computes base(x) + s B A dropout(x) as one autograd node that saves only x, in its own type. The
/// base is frozen. The gradient of x through the factors is added to the gradient through the base.
struct MultiplyBoth : torch::autograd::Function<MultiplyBoth> {
  static Tensor forward(
      AutogradContext* context,
      const Tensor& x,
      const Tensor& a,
      const Tensor& b,
      c10::intrusive_ptr<Beside> beside) {
    context->save_for_backward({x, a, b});
    context->saved_data["beside"] = c10::IValue::make_capsule(beside);
    const LowRankFactors factors = beside->factors.with(a, b);
    return factors.add_to(beside->base->forward(x, {}), x, beside->drawn);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto beside =
        c10::static_intrusive_pointer_cast<Beside>(context->saved_data["beside"].toCapsule());
    const LowRankFactors factors = beside->factors.with(saved[1], saved[2]);
    const Tensor& x = saved[0];
    const bool of_x = context->needs_input_grad(0), drops = beside->drawn.defined();
    const auto of_base = [&] { return beside->base->input_gradient(gradients[0], {}); };
    LowRankGradients made(
        factors,
        {of_x, context->needs_input_grad(1), context->needs_input_grad(2)},
        x.sizes(),
        x.scalar_type(),
        beside->drawn,
        of_x && !drops ? of_base() : Tensor());
    made.add_all(gradients[0], x);
    Tensor x_gradient = made.take_x();
    if (of_x && drops) {  // after the masked float32 rows have been freed
      x_gradient.add_(of_base());
    }
    return {x_gradient, made.of_a(), made.of_b(), Tensor()};
  }
};

/// Computes y + s B A dropout(x) as one autograd node, for a base with trained parameters.
struct AddLowRank : torch::autograd::Function<AddLowRank> {
  static Tensor forward(
      AutogradContext* context,
      const Tensor& y,
      const Tensor& x,
      const Tensor& a,
      const Tensor& b,
      c10::intrusive_ptr<Beside> beside) {
    context->save_for_backward({x, a, b});
    context->saved_data["beside"] = c10::IValue::make_capsule(beside);
    const LowRankFactors factors = beside->factors.with(a, b);
    return factors.add_to(y.clone(), x, beside->drawn);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto beside =
        c10::static_intrusive_pointer_cast<Beside>(context->saved_data["beside"].toCapsule());
    const LowRankFactors factors = beside->factors.with(saved[1], saved[2]);
    const Tensor& x = saved[0];
    LowRankGradients made(
        factors,
        {context->needs_input_grad(1), context->needs_input_grad(2), context->needs_input_grad(3)},
        x.sizes(),
        x.scalar_type(),
        beside->drawn);
    made.add_all(gradients[0], x);
    return {gradients[0], made.take_x(), made.of_a(), made.of_b(), Tensor()};
  }
};

}  // namespace

LowRankLinearKernel::LowRankLinearKernel(
    std::shared_ptr<LinearKernel> base, double scale, std::shared_ptr<Dropout> dropout)
    : base_(std::move(base)),
      factors_{.scale = scale, .dropout = std::move(dropout), .a = {}, .b = {}} {}

Tensor LowRankLinearKernel::draw(const ForwardContext& context) const {
  return factors_.dropout->draw(context);
}

Tensor LowRankLinearKernel::forward(const Tensor& x, const Tensor& drawn) const {
  if (!factors_.are_on) {
    return base_->forward(x, {});
  }
  auto beside = c10::make_intrusive<Beside>();
  beside->base = base_;
  beside->factors = {.scale = factors_.scale, .dropout = factors_.dropout, .a = {}, .b = {}};
  beside->drawn = drawn;
  return base_->is_trained()
             ? AddLowRank::apply(base_->forward(x, {}), x, factors_.a, factors_.b, beside)
             : MultiplyBoth::apply(x, factors_.a, factors_.b, beside);
}

Tensor LowRankLinearKernel::input_gradient(const Tensor& y_gradient, const Tensor& drawn) const {
  const Tensor of_base = base_->input_gradient(y_gradient, {});
  LowRankGradients made(
      factors_, {.x = true}, of_base.sizes(), of_base.scalar_type(), drawn, of_base);
  made.add_all(y_gradient, {});
  return made.take_x();
}

void LowRankLinearKernel::accumulate_weight_gradients(
    const Tensor& y_gradient, const Tensor& x, const Tensor& drawn) const {
  if (base_->is_trained()) {
    base_->accumulate_weight_gradients(y_gradient, x, {});
  }
  LowRankGradients made(
      factors_,
      {.x = false, .a = factors_.a.requires_grad(), .b = factors_.b.requires_grad()},
      x.sizes(),
      x.scalar_type(),
      drawn);
  made.add_all(y_gradient, x);
  made.accumulate();
}

void LowRankLinearKernel::visit_parameters(const ParameterFunction& function) {
  base_->visit_parameters(function);
  factors_.visit(function);
}

namespace {

/// Returns a separate dropout for each layer. Its key is derived from the layer's name, so that
/// masks do not depend on the plan.
std::shared_ptr<Dropout> dropout_of(const model::Adapter& adapter, const std::string& prefix) {
  auto dropout = std::make_shared<Dropout>();
  dropout->probability = adapter.dropout;
  dropout->site = static_cast<int64_t>(hash_name(prefix + ".lora_dropout"));
  return dropout;
}

std::shared_ptr<LinearKernel> adapted(
    const std::shared_ptr<LinearKernel>& base,
    const model::Adapter& adapter,
    const std::string& prefix) {
  const auto dropout = dropout_of(adapter, prefix);
  if (adapter.decomposes) {
    return std::make_shared<DecomposedLinearKernel>(base, adapter.scale, dropout);
  }
  return std::make_shared<LowRankLinearKernel>(base, adapter.scale, dropout);
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

/// Allocates the parameters of a layer's adapter on the device of the layer's other parameters; for
/// a tied head, on the device of the table.
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

/// Installs each adapter in the layer with its name.
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
        return;  // this stage uses the table only for its head
      }
      (*tokens)->adapter = adapted_table(adapter, name.prefix, /*of_embedding=*/true);
    } else if (const auto* sequence = slot.as<SequenceTokens>()) {
      (*sequence)->adapter = adapted_table(adapter, name.prefix, /*of_embedding=*/true);
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
    const auto layer = model.layers.find(prefix);  // a tied head is not a layer
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
    } else if (const auto* sequence = slot.as<SequenceTokens>()) {
      set((*sequence)->adapter);
    } else if (const auto* positions = slot.as<PositionEmbedding>()) {
      set((*positions)->adapter);
    } else if (const auto* head = slot.as<Head>()) {
      set((*head)->adapter);
    }
  });
}

}  // namespace lockstep::nn
