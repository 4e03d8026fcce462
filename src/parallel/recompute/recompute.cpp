#include "parallel/recompute/recompute.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "parallel/recompute/selective.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using Body = std::function<Tensor(const Tensor&)>;

struct HeldBody : torch::CustomClassHolder {
  Body call;
};

struct Recomputation : torch::autograd::Function<Recomputation> {
  /// `anchor` needs a gradient, so that this function has a backward pass where x needs none but
  /// parameters do.
  static Tensor forward(
      AutogradContext* context, const Tensor& x, const Tensor& /*anchor*/, Body body) {
    Tensor y = body(x);
    auto held = c10::make_intrusive<HeldBody>();
    held->call = std::move(body);
    context->saved_data["body"] = c10::IValue::make_capsule(held);
    context->saved_data["x_needs_gradient"] = x.requires_grad();
    context->save_for_backward({x});
    return y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradient) {
    const auto body =
        c10::static_intrusive_pointer_cast<HeldBody>(context->saved_data["body"].toCapsule());
    Tensor x = context->get_saved_variables()[0].detach();
    x.requires_grad_(context->saved_data["x_needs_gradient"].toBool());
    {
      const at::AutoGradMode with_gradients(true);
      const Tensor y = body->call(x);
      torch::autograd::backward({y}, {gradient[0]});
    }
    return {x.grad(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor recomputed(const Tensor& x, std::function<Tensor(const Tensor&)> body) {
  if (!at::GradMode::is_enabled()) {
    return body(x);
  }
  const Tensor anchor = at::empty({0}, x.options().dtype(at::kFloat)).requires_grad_();
  return Recomputation::apply(x, anchor, std::move(body));
}

void apply_recompute(nn::LanguageModel& model, const RecomputeOptions& options) {
  if (options.kind == Recompute::kNone) {
    return;
  }
  if (options.kind == Recompute::kSelective) {
    drop_activation_outputs(model, options.every);
    return;
  }
  const nn::ModelPart part = model.part();
  model.around_unit = [part, options, inner = model.around_unit](
                          int64_t unit, const Tensor& x, const nn::LanguageModel::UnitBody& body) {
    const int64_t layer = unit - (part.embedding ? 1 : 0);
    const bool is_block = layer >= 0 && layer < part.layers;
    if (!is_block || (part.first_layer + layer) % options.every != 0) {
      return inner(unit, x, body);
    }
    return inner(unit, x, [body](const Tensor& in) { return recomputed(in, body); });
  };
}

}  // namespace lockstep::parallel
