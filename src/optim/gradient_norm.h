// Norm of flat gradients, and detection of NaN and Inf. These functions do not communicate. The
// caller must all-reduce the float64 sums of squares, with each element counted on one rank.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::optim {

/// Returns the sum of squares of a flat, contiguous float32, bfloat16 or float64 buffer,
/// accumulated in float64. Returns 0 for an empty or undefined tensor, and NaN or Inf if an element
/// is NaN or Inf. The bits depend only on the values, not on the number of threads.
double squared_norm(const at::Tensor& flat);
/// Returns the same sum as a float64 tensor [1] on the device, without synchronization. `flat` must
/// not be empty.
at::Tensor squares_on_device(const at::Tensor& flat);

/// Returns the index of the first element that is NaN or Inf; nullopt if there is none.
std::optional<int64_t> first_non_finite(const at::Tensor& flat);

/// Returns the factor that clips gradients with L2 norm `norm` to `max_norm`: min(1, max_norm /
/// (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_. Returns 1 if max_norm is not positive (no
/// clipping).
double clip_factor(double norm, double max_norm);

}  // namespace lockstep::optim
