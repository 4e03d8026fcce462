// Identity operations that run a callback in the backward pass.
#include "parallel/autograd/backward_hooks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <torch/csrc/autograd/custom_function.h>

namespace lockstep::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct Callback : torch::CustomClassHolder {
  std::function<void()> call;
};

struct BackwardHook : torch::autograd::Function<BackwardHook> {
  static tensor_list forward(
      AutogradContext* context, at::TensorList tensors, std::function<void()> reached) {
    auto callback = c10::make_intrusive<Callback>();
    callback->call = std::move(reached);
    context->saved_data["reached"] = c10::IValue::make_capsule(callback);
    context->set_materialize_grads(false);
    return tensors.vec();
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    c10::static_intrusive_pointer_cast<Callback>(context->saved_data["reached"].toCapsule())
        ->call();
    gradients.emplace_back();  // the callback argument has no gradient
    return gradients;
  }
};

}  // namespace

at::Tensor when_backward_reaches(const at::Tensor& x, std::function<void()> reached) {
  return when_backward_reaches(std::vector<at::Tensor>{x}, std::move(reached)).front();
}

std::vector<at::Tensor> when_backward_reaches(
    std::vector<at::Tensor> tensors, std::function<void()> reached) {
  // Tensors that require no gradient must not receive one.
  const auto needs_gradient = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad();
  };
  std::vector<at::Tensor> watched;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(watched), needs_gradient);
  if (watched.empty()) {
    return tensors;
  }
  const tensor_list passed = BackwardHook::apply(at::TensorList(watched), std::move(reached));
  auto next = passed.begin();
  for (at::Tensor& tensor : tensors) {
    tensor = needs_gradient(tensor) ? *next++ : tensor;
  }
  return tensors;
}

}  // namespace lockstep::parallel
