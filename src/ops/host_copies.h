// Copies between the host and a GPU, by way of pinned memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// The tensor on `device`. The host does not wait for the copy.
Tensor to_device(const Tensor& tensor, c10::Device device);
/// The tensor in the host's memory, which waits until it is computed and there.
Tensor to_host(const Tensor& tensor);

}  // namespace lockstep::ops
