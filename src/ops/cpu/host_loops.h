// Choice between custom CPU loops and ATen operations.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// Returns true if x is in host memory and LOCKSTEP_PLAIN_OPS is not 1. With that variable, the CPU
/// uses the same ATen operations as a GPU, so that they can be tested on machines without a GPU.
bool has_host_loops(const at::Tensor& x);

}  // namespace lockstep::ops
