// Whether loops of this project over host memory serve a tensor, or ATen's operations.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// It lies in host memory, and LOCKSTEP_PLAIN_OPS is not 1: with that the forms of ATen's
/// operations serve, which GPUs run, so that machines without one run them too.
bool has_host_loops(const at::Tensor& x);

}  // namespace lockstep::ops
