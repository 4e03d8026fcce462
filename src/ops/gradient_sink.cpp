// Access to the gradient sinks of parameters.
#include "ops/gradient_sink.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep::ops {
namespace {

GradientSink* sink_of(const Tensor& parameter) {
  const bool is_variable =
      parameter.defined() && torch::autograd::impl::get_autograd_meta(parameter) != nullptr;
  return is_variable ? dynamic_cast<GradientSink*>(
                           torch::autograd::impl::post_acc_grad_hooks(parameter).get())
                     : nullptr;
}

GradientPlace lent(const Tensor& parameter, Makes makes) {
  GradientSink* sink = at::GradMode::is_enabled() ? nullptr : sink_of(parameter);
  return sink == nullptr ? GradientPlace{} : sink->lend(makes);
}

}  // namespace

bool has_gradient_sink(const Tensor& parameter) {
  return sink_of(parameter) != nullptr;
}

void notify_gradient_sink(const Tensor& parameter) {
  if (GradientSink* sink = sink_of(parameter)) {
    (*sink)(parameter);
  }
}

GradientPlace place_of_gradient(const Tensor& parameter) {
  return lent(parameter, Makes::kWrittenOrAdded);
}

Tensor memory_of_gradient(const Tensor& parameter) {
  return lent(parameter, Makes::kWritten).memory;
}

}  // namespace lockstep::ops
