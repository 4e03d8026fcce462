#include "parallel/offload/device_copies.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "ops/cuda_loops.h"

namespace lockstep::parallel {

DeviceCopies::DeviceCopies(c10::Device device)
    : stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)) {}

c10::Stream DeviceCopies::current() const {
  return c10::impl::VirtualGuardImpl(stream_.device_type()).getStream(stream_.device());
}

void DeviceCopies::follow_compute() {
  c10::Event computed(stream_.device_type());
  computed.record(current());
  computed.block(stream_);
}

void DeviceCopies::lead_compute() {
  c10::Event copied(stream_.device_type());
  copied.record(stream_);
  copied.block(current());
}

c10::Event DeviceCopies::start(const at::Tensor& to, const at::Tensor& from) {
  const c10::StreamGuard guard(stream_);
  to.copy_(from, /*non_blocking=*/true);
  c10::Event event(stream_.device_type());
  event.record(stream_);
  return event;
}

at::Tensor to_pinned_host(const at::Tensor& tensor) {
  const auto options = tensor.options().device(at::kCPU);
  const bool registers =
      tensor.is_cuda() && ops::cuda_loops().pinned != nullptr && tensor.numel() > 0;
  const at::Tensor host = registers
                              ? ops::cuda_loops()
                                    .pinned(static_cast<int64_t>(tensor.nbytes()))
                                    .view(tensor.scalar_type())
                              : at::empty(tensor.numel(), options.pinned_memory(tensor.is_cuda()));
  return host.view(tensor.sizes()).copy_(tensor);
}

}  // namespace lockstep::parallel
