#include "parallel/pipeline/deferred.h"

#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "ops/linear.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// What the backward pass needs beside the saved tensors; it travels in a capsule.
struct Operands : torch::CustomClassHolder {
  Tensor weight, bias;
  nn::WeightLayout layout = nn::WeightLayout::kOutIn;
  std::shared_ptr<DeferredQueue> queue;
};

void accumulate_product_gradients(
    const Operands& operands, const Tensor& x, const Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const bool has_bias = operands.bias.defined() && operands.bias.requires_grad();
  if (!operands.weight.requires_grad()) {
    if (has_bias) {
      accumulate_gradient(operands.bias, gradient.flatten(0, -2).sum(0));
    }
    return;
  }
  const auto made = ops::linear_weight_gradients(
      gradient, x, operands.layout, has_bias ? ops::BiasGradient::kMade : ops::BiasGradient::kNone);
  accumulate_gradient(operands.weight, made.weight);
  if (has_bias) {
    accumulate_gradient(operands.bias, made.bias);
  }
}

struct DeferredProduct : torch::autograd::Function<DeferredProduct> {
  static Tensor forward(
      AutogradContext* context, const Tensor& x, c10::intrusive_ptr<Operands> operands) {
    context->save_for_backward({x});
    context->saved_data["operands"] = c10::IValue::make_capsule(operands);
    const auto bias = operands->bias.defined() ? std::optional(operands->bias) : std::nullopt;
    return ops::linear(x, operands->weight, bias, operands->layout);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto operands =
        c10::static_intrusive_pointer_cast<Operands>(context->saved_data["operands"].toCapsule());
    const Tensor x = context->get_saved_variables()[0];
    const Tensor gradient = gradients[0];
    operands->queue->push(
        [operands, x, gradient] { accumulate_product_gradients(*operands, x, gradient); });
    return {
        ops::linear_input_gradient(gradient, operands->weight.detach(), operands->layout),
        Tensor()};
  }
};

class Deferral final : public nn::SlotVisitor {
 public:
  explicit Deferral(std::shared_ptr<DeferredQueue> queue) : queue_(std::move(queue)) {}
  void linear(const nn::SlotName& /*name*/, std::shared_ptr<nn::Linear>& slot) override {
    defer_weight_gradients(*slot, queue_);
  }

 private:
  std::shared_ptr<DeferredQueue> queue_;
};

}  // namespace

void defer_weight_gradients(nn::Linear& linear, const std::shared_ptr<DeferredQueue>& queue) {
  linear.product = [plain = linear.product, layout = linear.layout, queue](
                       const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
    // What is no leaf is a function of a parameter, whose gradient autograd alone can pass on.
    if (!x.requires_grad() || !weight.is_leaf() || !at::GradMode::is_enabled()) {
      return plain(x, weight, bias);
    }
    const bool adds_bias = bias && bias->is_leaf();
    auto operands = c10::make_intrusive<Operands>();
    operands->weight = weight;
    operands->bias = adds_bias ? *bias : Tensor();
    operands->layout = layout;
    operands->queue = queue;
    const Tensor product = DeferredProduct::apply(x, operands);
    return bias && !adds_bias ? product + *bias : product;
  };
}

void defer_weight_gradients(nn::LanguageModel& model, const std::shared_ptr<DeferredQueue>& queue) {
  Deferral deferral(queue);
  model.visit_slots(deferral);
}

void accumulate_gradient(const Tensor& parameter, Tensor gradient) {
  const at::NoGradGuard no_grad;
  tensor_list gradients{std::move(gradient)};
  // Hooks of a tensor are called by autograd's engine; those after the accumulation by the node.
  for (const auto& hook : torch::autograd::impl::hooks(parameter)) {
    gradients = (*hook)(gradients);
  }
  (*torch::autograd::impl::grad_accumulator(parameter))(std::move(gradients));
}

}  // namespace lockstep::parallel
