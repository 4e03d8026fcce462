// Destinations of parameter gradients, which allow a backward kernel to write a gradient directly
// into its buffer without a copy.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

namespace lockstep::ops {

using at::Tensor;

/// Contiguous memory for one gradient, with the parameter's shape and device. An operation that
/// writes its gradient there must return an undefined gradient to autograd.
struct GradientPlace {
  Tensor memory;           // undefined: no memory is available and autograd delivers the gradient
  bool holds_sum = false;  // true: add the gradient to the sum in `memory`; false: overwrite
                           // `memory`
};

/// Capabilities of the operation that computes a gradient.
enum class Makes {
  kWritten,         // can overwrite memory with the gradient, in the parameter's type
  kWrittenOrAdded,  // can also add to a sum, and can do both in float32 for a 16-bit parameter
};

/// Hook of a parameter that has a gradient buffer. Autograd calls it after all gradients of the
/// parameter in a backward pass have been computed. grad() is undefined if all of them are already
/// in the buffer; otherwise it is the gradient that must still be added.
class GradientSink : public torch::autograd::PostAccumulateGradHook {
 public:
  virtual GradientPlace lend(Makes makes) = 0;
};

/// Returns true if the tensor is a parameter with a sink.
bool has_gradient_sink(const Tensor& parameter);
/// Calls the parameter's sink, if any, for a gradient that was not delivered by autograd.
void notify_gradient_sink(const Tensor& parameter);
/// Returns the memory of the parameter's sink, if any. Returns none if autograd is recording
/// (double backward).
GradientPlace place_of_gradient(const Tensor& parameter);
/// Variant for operations that can only overwrite, in the parameter's type.
Tensor memory_of_gradient(const Tensor& parameter);

}  // namespace lockstep::ops
