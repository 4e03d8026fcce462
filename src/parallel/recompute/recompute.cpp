// Activation checkpointing of model layers.
#include "parallel/recompute/recompute.h"

#include <algorithm>
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
  DeferredParameters deferred;
};

/// Runs the backward pass from `ends`. Stores input gradients in grad() and queues the gradients of
/// the parameters.
void backward_later(
    const tensor_list& ends,
    const tensor_list& of_ends,
    const tensor_list& inputs,
    const DeferredParameters& deferred) {
  tensor_list wanted;
  const auto want = [&](const tensor_list& tensors) {
    for (const Tensor& tensor : tensors) {
      if (tensor.requires_grad()) {
        wanted.push_back(tensor);
      }
    }
    return wanted.size();
  };
  const size_t of_inputs = want(inputs);
  want(deferred.parameters());
  tensor_list made = torch::autograd::grad(
      ends,
      wanted,
      of_ends,
      /*retain_graph=*/false,
      /*create_graph=*/false,
      /*allow_unused=*/true);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i < of_inputs) {
      wanted[i].mutable_grad() = std::move(made[i]);
    } else {
      deferred.queue->push([parameter = wanted[i], gradient = std::move(made[i])] {
        nn::accumulate_gradient(parameter, gradient);
      });
    }
  }
}

struct Recomputation : torch::autograd::Function<Recomputation> {
  /// `anchor` requires a gradient, so that this function has a backward pass if only the
  /// parameters, but not x, require one.
  static tensor_list forward(
      AutogradContext* context,
      at::TensorList inputs,
      const Tensor& /*anchor*/,
      c10::intrusive_ptr<HeldBody> body) {
    context->set_materialize_grads(false);
    const tensor_list x = inputs.vec();
    tensor_list y = body->call(x);
    context->saved_data["body"] = c10::IValue::make_capsule(std::move(body));
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
      if (body->deferred.queue == nullptr) {
        torch::autograd::backward(ends, of_ends);
      } else {
        backward_later(ends, of_ends, x, body->deferred);
      }
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
  return recomputed(inputs, std::move(body), DeferredParameters{});
}

tensor_list recomputed(const tensor_list& inputs, Body body, DeferredParameters deferred) {
  if (!at::GradMode::is_enabled()) {
    return body(inputs);
  }
  const Tensor anchor = at::empty({0}, inputs.front().options().dtype(at::kFloat)).requires_grad_();
  auto held = c10::make_intrusive<HeldBody>();
  held->call = std::move(body);
  held->deferred = std::move(deferred);
  return Recomputation::apply(at::TensorList(inputs), anchor, std::move(held));
}

namespace {

std::vector<Tensor> parameters_of(nn::Block& block) {
  std::vector<Tensor> parameters;
  block.visit_slots(nn::each_layer([&](const nn::SlotName&, nn::Layer& layer) {
    layer.visit_parameters([&](const nn::Parameter& parameter) {
      if (parameter.value.defined()) {
        parameters.push_back(parameter.value);
      }
    });
  }));
  return parameters;
}

bool needs_gradient(const std::vector<Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad();
  });
}

}  // namespace

void apply_recompute(
    nn::LanguageModel& model,
    const RecomputeOptions& options,
    const std::shared_ptr<DeferredQueue>& deferred) {
  if (options.kind == Recompute::kNone) {
    return;
  }
  if (options.kind == Recompute::kSelective) {
    if (model.config().mlp_dropout > 0) {
      throw Error(
          ErrorKind::kConfig,
          "parallel.recompute=selective is not supported with dropout inside the MLP: the tensor "
          "that it would free is not only the activation's output",
          "use parallel.recompute=full, or a model without dropout");
    }
    drop_activation_outputs(model, options.every);
    return;
  }
  const nn::ModelPart part = model.part();
  model.around_unit =
      [part, options, deferred, blocks = model.blocks(), inner = model.around_unit](
          int64_t unit, const nn::Tensors& inputs, const nn::LanguageModel::UnitBody& body) {
        const int64_t layer = unit - (part.embedding ? 1 : 0);
        const bool is_block = layer >= 0 && layer < part.layers;
        if (!is_block || (part.first_layer + layer) % options.every != 0) {
          return inner(unit, inputs, body);
        }
        const auto parameters = [block = blocks[static_cast<size_t>(layer)]] {
          return parameters_of(*block);
        };
        return inner(unit, inputs, [body, deferred, parameters](const nn::Tensors& in) {
          // All earlier layers are frozen. If this layer is frozen too, nothing is kept. If
          // gradients are deferred, the input half of the backward pass would not reach a
          // recomputation of the layer.
          const bool is_reached =
              needs_gradient(in) || (deferred == nullptr && needs_gradient(parameters()));
          return is_reached ? recomputed(in, body, {deferred, parameters}) : body(in);
        });
      };
}

}  // namespace lockstep::parallel
