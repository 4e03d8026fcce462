// Hooks at the boundaries of a unit in the backward pass.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

/// Returns x unchanged; the backward pass calls `reached` when it gets to this point, before it
/// continues. Never called if x needs no gradient.
at::Tensor when_backward_reaches(const at::Tensor& x, std::function<void()> reached);
/// The same for several tensors: `reached` is called once, when the gradients of all are available.
std::vector<at::Tensor> when_backward_reaches(
    std::vector<at::Tensor> tensors, std::function<void()> reached);

}  // namespace lockstep::parallel
