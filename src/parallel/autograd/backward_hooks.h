// Where the forward and the backward pass enter and leave a unit.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

/// x, unchanged; the backward pass calls `reached` when it comes to this place, before it goes on.
/// On x that needs no gradient it never comes.
at::Tensor when_backward_reaches(const at::Tensor& x, std::function<void()> reached);
/// The same of several at once: `reached` is called once, when the gradients of all are there.
std::vector<at::Tensor> when_backward_reaches(
    std::vector<at::Tensor> tensors, std::function<void()> reached);

}  // namespace lockstep::parallel
