// Asynchronous copies on a separate stream, and pinned host memory.
#include "ops/device_copies.h"

#include <exception>
#include <new>
#include <string_view>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/mman.h>

#include "base/log.h"
#include "ops/cuda_loops.h"

namespace lockstep::ops {

DeviceCopies::DeviceCopies(c10::Device device)
    : stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)) {}

c10::Stream DeviceCopies::current() const {
  return c10::impl::VirtualGuardImpl(stream_.device_type()).getStream(stream_.device());
}

c10::Event DeviceCopies::now() const {
  c10::Event event(stream_.device_type());
  event.record(stream_);
  return event;
}

void DeviceCopies::follow_compute() {
  c10::Event computed(stream_.device_type());
  computed.record(current());
  computed.block(stream_);
}

c10::Event DeviceCopies::run(const std::function<void()>& body) {
  const c10::StreamGuard guard(stream_);
  body();
  return now();
}

c10::Event DeviceCopies::start(const Tensor& to, const Tensor& from) {
  return run([&] { to.copy_(from, /*non_blocking=*/true); });
}

std::shared_ptr<void> pin_host(void* memory, int64_t bytes) {
  try {
    return cuda_loops().pin == nullptr || bytes == 0 ? nullptr : cuda_loops().pin(memory, bytes);
  } catch (const std::exception& error) {
    log_warning(
        "cannot pin {} bytes of host memory, so copies between it and a GPU are synchronous: {}; "
        "raise the limit of locked memory (ulimit -l) or free memory",
        bytes,
        std::string_view(error.what()).substr(0, std::string_view(error.what()).find('\n')));
    return nullptr;
  }
}

Tensor host_bytes(int64_t bytes, bool is_pinned) {
  const auto options = at::TensorOptions().dtype(at::kByte);
  if (!is_pinned || bytes == 0) {
    return at::empty({bytes}, options);
  }
  const auto size = static_cast<size_t>(bytes);
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  const std::shared_ptr<void> pages(memory, [size](void* begin) { ::munmap(begin, size); });
  ::madvise(memory, size, MADV_HUGEPAGE);  // huge pages make copies faster
  return at::from_blob(
      memory,
      {bytes},
      [pages, pin = pin_host(memory, bytes)](void*) mutable { pin.reset(); },
      options);
}

Tensor host_like(const Tensor& tensor) {
  return host_bytes(static_cast<int64_t>(tensor.nbytes()), tensor.is_cuda())
      .view(tensor.scalar_type())
      .view(tensor.sizes());
}

}  // namespace lockstep::ops
