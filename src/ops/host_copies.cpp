#include "ops/host_copies.h"

#include <ATen/ops/empty.h>

namespace lockstep::ops {

Tensor to_device(const Tensor& tensor, c10::Device device) {
  const bool leaves_the_host = tensor.is_cpu() && !device.is_cpu() && tensor.numel() > 0;
  return leaves_the_host ? tensor.pin_memory().to(device, /*non_blocking=*/true)
                         : tensor.to(device);
}

Tensor to_host(const Tensor& tensor) {
  if (tensor.is_cpu()) {
    return tensor;
  }
  const auto host = tensor.options().device(at::kCPU).pinned_memory(true);
  return at::empty(tensor.sizes(), host).copy_(tensor);
}

}  // namespace lockstep::ops
