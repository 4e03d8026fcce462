// Callbacks at the boundaries of a unit in the backward pass.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

/// Returns x unchanged. The backward pass calls `reached` when it arrives at this point, before it
/// continues. `reached` is never called if x requires no gradient.
at::Tensor when_backward_reaches(const at::Tensor& x, std::function<void()> reached);
/// Overload for several tensors: `reached` is called once, when the gradients of all tensors are
/// available.
std::vector<at::Tensor> when_backward_reaches(
    std::vector<at::Tensor> tensors, std::function<void()> reached);

}  // namespace lockstep::parallel
