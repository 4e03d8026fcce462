// Destination of a parameter's gradient, so that a backward kernel writes the gradient directly
// into its buffer, without a copy.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

namespace lockstep::ops {

using at::Tensor;

/// Memory for one gradient, contiguous, of the parameter's shape and device. An operation that has
/// written its gradient there returns an undefined gradient to autograd.
struct GradientPlace {
  Tensor memory;           // undefined: no memory; autograd delivers the gradient
  bool holds_sum = false;  // true: add the gradient to the sum in memory; false: overwrite
};

/// Capabilities of the operation that computes the gradient.
enum class Makes {
  kWritten,         // can write the gradient, in the parameter's type
  kWrittenOrAdded,  // can also add it, and do both in float32 for a 16-bit parameter
};

/// Hook of a parameter with a gradient buffer. It is called after all gradients of the parameter in
/// a backward pass are computed. grad() is undefined if each is already in the buffer; otherwise it
/// is the gradient to be added.
class GradientSink : public torch::autograd::PostAccumulateGradHook {
 public:
  virtual GradientPlace lend(Makes makes) = 0;
};

/// True if a tensor is a parameter with a sink.
bool has_gradient_sink(const Tensor& parameter);
/// Calls the parameter's sink, if any, as autograd does if it delivered no gradient.
void notify_gradient_sink(const Tensor& parameter);
/// Returns the memory of the parameter's sink, if any. Empty if autograd is recording (double
/// backward).
GradientPlace place_of_gradient(const Tensor& parameter);
/// The same for an operation that can only write, in the parameter's type.
Tensor memory_of_gradient(const Tensor& parameter);

}  // namespace lockstep::ops
