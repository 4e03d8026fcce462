#include "parallel/recompute/recompute.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "parallel/recompute/selective.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using Body = std::function<tensor_list(const tensor_list&)>;

struct HeldBody : torch::CustomClassHolder {
  Body call;
};

struct Recomputation : torch::autograd::Function<Recomputation> {
  /// `anchor` needs a gradient, so that this function has a backward pass where x needs none but
  /// parameters do.
  static tensor_list forward(
      AutogradContext* context, at::TensorList inputs, const Tensor& /*anchor*/, Body body) {
    context->set_materialize_grads(false);
    const tensor_list x = inputs.vec();
    tensor_list y = body(x);
    auto held = c10::make_intrusive<HeldBody>();
    held->call = std::move(body);
    context->saved_data["body"] = c10::IValue::make_capsule(held);
    c10::List<bool> needs_gradient;
    for (const Tensor& input : x) {
      needs_gradient.push_back(input.requires_grad());
    }
    context->saved_data["needs_gradient"] = needs_gradient;
    context->save_for_backward(x);
    return y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto body =
        c10::static_intrusive_pointer_cast<HeldBody>(context->saved_data["body"].toCapsule());
    tensor_list x = context->get_saved_variables();
    const auto needs_gradient = context->saved_data["needs_gradient"].toBoolList();
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = x[i].detach().requires_grad_(needs_gradient.get(i));
    }
    {
      const at::AutoGradMode with_gradients(true);
      const tensor_list y = body->call(x);
      tensor_list ends, of_ends;
      for (size_t i = 0; i < y.size(); ++i) {
        if (gradients[i].defined() && y[i].requires_grad()) {
          ends.push_back(y[i]);
          of_ends.push_back(gradients[i]);
        }
      }
      torch::autograd::backward(ends, of_ends);
    }
    tensor_list results;
    for (const Tensor& input : x) {
      results.push_back(input.grad());
    }
    results.resize(x.size() + 2);
    return results;
  }
};

}  // namespace

Tensor recomputed(const Tensor& x, std::function<Tensor(const Tensor&)> body) {
  return recomputed(
             tensor_list{x},
             [body = std::move(body)](const tensor_list& inputs) {
               return tensor_list{body(inputs.front())};
             })
      .front();
}

tensor_list recomputed(const tensor_list& inputs, Body body) {
  if (!at::GradMode::is_enabled()) {
    return body(inputs);
  }
  const Tensor anchor = at::empty({0}, inputs.front().options().dtype(at::kFloat)).requires_grad_();
  return Recomputation::apply(at::TensorList(inputs), anchor, std::move(body));
}

void apply_recompute(nn::LanguageModel& model, const RecomputeOptions& options) {
  if (options.kind == Recompute::kNone) {
    return;
  }
  if (options.kind == Recompute::kSelective) {
    if (model.config().mlp_dropout > 0) {
      throw Error(
          ErrorKind::kConfig,
          "parallel.recompute=selective is not supported where dropout stands inside the MLP: what "
          "it would let go of is not the activation's output alone",
          "use parallel.recompute=full, or a model without dropout");
    }
    drop_activation_outputs(model, options.every);
    return;
  }
  const nn::ModelPart part = model.part();
  model.around_unit =
      [part, options, inner = model.around_unit](
          int64_t unit, const nn::Tensors& inputs, const nn::LanguageModel::UnitBody& body) {
        const int64_t layer = unit - (part.embedding ? 1 : 0);
        const bool is_block = layer >= 0 && layer < part.layers;
        if (!is_block || (part.first_layer + layer) % options.every != 0) {
          return inner(unit, inputs, body);
        }
        return inner(unit, inputs, [body](const nn::Tensors& in) { return recomputed(in, body); });
      };
}

}  // namespace lockstep::parallel
