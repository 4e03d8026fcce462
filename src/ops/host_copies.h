// Copies between the host and a GPU through pinned memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Returns a copy of the tensor on `device`. The host does not wait for the copy.
Tensor to_device(const Tensor& tensor, c10::Device device);
/// Returns a copy of the tensor in host memory. Blocks until the copy is complete.
Tensor to_host(const Tensor& tensor);

}  // namespace lockstep::ops
