// Where a parameter's gradient belongs, so that the operation that makes it writes it there, and
// nobody carries it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

namespace lockstep::ops {

using at::Tensor;

/// Memory for one gradient: of the parameter's shape and device, contiguous. Who made the gradient
/// there gives autograd an undefined one.
struct GradientPlace {
  Tensor memory;           // undefined: there is none, and the gradient goes by autograd
  bool holds_sum = false;  // of gradients, to which this one is added; else it is written
};

/// What the maker of a gradient can do.
enum class Makes {
  kWritten,         // write it, in the parameter's type
  kWrittenOrAdded,  // or add it, and either in float32 if the parameter has 16 bits
};

/// The hook of a parameter whose gradients end in a place that it knows. It is called when all of a
/// backward pass's gradients of the parameter are made: its grad() is undefined if each is where it
/// belongs, and else what is to be added.
class GradientSink : public torch::autograd::PostAccumulateGradHook {
 public:
  virtual GradientPlace lend(Makes makes) = 0;
};

/// Whether a tensor is a parameter with a taker.
bool has_gradient_sink(const Tensor& parameter);
/// Calls its taker, if it has one, as autograd would where no gradient went by it.
void notify_gradient_sink(const Tensor& parameter);
/// What its taker lends, if it has one. No autograd: nothing where gradients are recorded.
GradientPlace place_of_gradient(const Tensor& parameter);
/// The same for one who writes it, in the parameter's type.
Tensor memory_of_gradient(const Tensor& parameter);

}  // namespace lockstep::ops
