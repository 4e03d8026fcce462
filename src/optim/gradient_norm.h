// The norm of flat gradients, and the search for what is not a number in them. Local: the sum over
// ranks is the caller's (all-reduce the float64 squares, each element counted on one rank).
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::optim {

/// The sum of squares of a flat, contiguous float32, bfloat16 or float64 buffer, accumulated in
/// float64. The bits depend on the values alone, not on the number of threads. NaN or infinity
/// where an element is one. 0 of an empty or undefined tensor.
double squared_norm(const at::Tensor& flat);
/// The same as a float64 tensor [1] on the device, where nothing waits for it. Not empty.
at::Tensor squares_on_device(const at::Tensor& flat);

/// The index of the first element that is NaN or infinite.
std::optional<int64_t> first_non_finite(const at::Tensor& flat);

/// The factor that clips gradients of L2 norm `norm` to `max_norm`: min(1, max_norm / (norm +
/// 1e-6)), as torch.nn.utils.clip_grad_norm_ has it; 1 where max_norm is 0 or less (no clipping).
double clip_factor(double norm, double max_norm);

}  // namespace lockstep::optim
