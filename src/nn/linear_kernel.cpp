// Dense linear kernel, and the backward pass in two halves.
#include "nn/linear_kernel.h"

#include <optional>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/custom_class.h>

#include "ops/gradient_sink.h"

namespace lockstep::nn {
namespace {

thread_local bool holds_gradients = false;
thread_local std::unordered_map<const c10::TensorImpl*, Tensor> held_gradients;

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// State of the backward pass other than x, stored in a capsule.
struct Halves : torch::CustomClassHolder {
  std::shared_ptr<const LinearKernel> product;
  Tensor drawn;
  Later later;
};

struct ProductInHalves : torch::autograd::Function<ProductInHalves> {
  static Tensor forward(
      AutogradContext* context, const Tensor& x, c10::intrusive_ptr<Halves> halves) {
    if (halves->product->is_trained()) {
      context->save_for_backward({x});
    }
    context->saved_data["halves"] = c10::IValue::make_capsule(halves);
    return halves->product->forward(x, halves->drawn);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto halves =
        c10::static_intrusive_pointer_cast<Halves>(context->saved_data["halves"].toCapsule());
    const Tensor gradient = gradients[0];
    if (const tensor_list saved = context->get_saved_variables(); !saved.empty()) {
      halves->later([product = halves->product, drawn = halves->drawn, gradient, x = saved[0]] {
        const at::NoGradGuard no_grad;
        product->accumulate_weight_gradients(gradient, x, drawn);
      });
    }
    return {halves->product->input_gradient(gradient, halves->drawn), Tensor()};
  }
};

}  // namespace

Tensor LinearKernel::draw(const ForwardContext& /*context*/) const {
  return {};
}

Tensor multiply_in_halves(
    const std::shared_ptr<const LinearKernel>& product,
    const Tensor& x,
    const Tensor& drawn,
    const Later& later) {
  auto halves = c10::make_intrusive<Halves>();
  halves->product = product;
  halves->drawn = drawn;
  halves->later = later;
  return ProductInHalves::apply(x, halves);
}

Tensor DenseLinearKernel::forward(const Tensor& x, const Tensor& /*drawn*/) const {
  return ops::linear(x, weight_, bias_.defined() ? std::optional(bias_) : std::nullopt, layout_);
}

Tensor DenseLinearKernel::input_gradient(const Tensor& y_gradient, const Tensor& /*drawn*/) const {
  return ops::linear_input_gradient(y_gradient, weight_.detach(), layout_);
}

void DenseLinearKernel::accumulate_weight_gradients(
    const Tensor& y_gradient, const Tensor& x, const Tensor& /*drawn*/) const {
  const bool has_bias = bias_.defined() && bias_.requires_grad();
  if (!weight_.requires_grad()) {
    if (has_bias) {
      accumulate_gradient(bias_, ops::linear_bias_gradient(y_gradient, bias_));
    }
    return;
  }
  auto made =
      ops::linear_weight_gradients(y_gradient, x, weight_, has_bias ? bias_ : Tensor(), layout_);
  accumulate_gradient(weight_, std::move(made.weight));
  if (has_bias) {
    accumulate_gradient(bias_, std::move(made.bias));
  }
}

bool DenseLinearKernel::is_trained() const {
  return weight_.requires_grad() || (bias_.defined() && bias_.requires_grad());
}

void DenseLinearKernel::visit_parameters(const ParameterFunction& function) {
  const bool is_out_in = layout_ == WeightLayout::kOutIn;
  function({"weight", weight_, is_out_in ? 0 : 1, is_out_in ? 1 : 0});
  function({"bias", bias_, 0, -1});
}

Tensor DenseLinearKernel::take_bias() {
  return std::exchange(bias_, Tensor());
}

Tensor DenseLinearKernel::matrix_rows(int64_t first, int64_t count) const {
  const Tensor weight = weight_.detach();
  return (layout_ == WeightLayout::kOutIn ? weight : weight.t()).narrow(0, first, count);
}

void accumulate_gradient(const Tensor& parameter, Tensor gradient) {
  const at::NoGradGuard no_grad;
  if (!gradient.defined() && holds_gradients) {
    return;
  }
  const auto held = held_gradients.find(parameter.unsafeGetTensorImpl());
  if (held != held_gradients.end()) {
    gradient = gradient.defined() ? held->second + gradient : held->second;
    held_gradients.erase(held);
  }
  if (holds_gradients) {
    held_gradients.emplace(parameter.unsafeGetTensorImpl(), std::move(gradient));
    return;
  }
  if (!gradient.defined()) {
    ops::notify_gradient_sink(parameter);
    return;
  }
  tensor_list gradients{std::move(gradient)};
  // Runs the tensor's hooks as the autograd engine would. Post-accumulation hooks belong to the
  // accumulation node.
  for (const auto& hook : torch::autograd::impl::hooks(parameter)) {
    gradients = (*hook)(gradients);
  }
  (*torch::autograd::impl::grad_accumulator(parameter))(std::move(gradients));
}

void hold_gradients(const std::function<void()>& work) {
  struct Holding {
    bool before = std::exchange(holds_gradients, true);
    ~Holding() { holds_gradients = before; }
  } holding;
  work();
}

}  // namespace lockstep::nn
