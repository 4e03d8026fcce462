#include "ops/gradient_place.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep::ops {
namespace {

GradientTaker* taker_of(const Tensor& parameter) {
  const bool is_variable =
      parameter.defined() && torch::autograd::impl::get_autograd_meta(parameter) != nullptr;
  return is_variable ? dynamic_cast<GradientTaker*>(
                           torch::autograd::impl::post_acc_grad_hooks(parameter).get())
                     : nullptr;
}

GradientPlace lent(const Tensor& parameter, Makes makes) {
  GradientTaker* taker = at::GradMode::is_enabled() ? nullptr : taker_of(parameter);
  return taker == nullptr ? GradientPlace{} : taker->lend(makes);
}

}  // namespace

bool has_gradient_taker(const Tensor& parameter) {
  return taker_of(parameter) != nullptr;
}

void tell_gradient_taker(const Tensor& parameter) {
  if (GradientTaker* taker = taker_of(parameter)) {
    (*taker)(parameter);
  }
}

GradientPlace place_of_gradient(const Tensor& parameter) {
  return lent(parameter, Makes::kWrittenOrAdded);
}

Tensor memory_of_gradient(const Tensor& parameter) {
  return lent(parameter, Makes::kWritten).memory;
}

}  // namespace lockstep::ops
