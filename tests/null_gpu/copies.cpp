// Copies between host and device. Data from a device are zeros and arrive late: until the stream
// has executed the copy, the host reads bytes of all ones, which is NaN in every floating type.
#include <cstring>

#include "null_gpu/machine.h"
#include "null_gpu/order.h"
#include "null_gpu/report.h"

namespace null_gpu {
namespace {

bool is_device(const Range* range) {
  return range != nullptr && range->kind != Kind::kPinned;
}

bool fits(const void* address, const Range* range, size_t bytes) {
  return range == nullptr ||
         reinterpret_cast<uintptr_t>(address) + bytes <= range->begin + range->bytes;
}

cudaError_t copy(
    void* to,
    const void* from,
    size_t bytes,
    cudaMemcpyKind kind,
    cudaStream_t handle,
    bool is_blocking) {
  if (bytes == 0) {
    return cudaSuccess;
  }
  std::unique_lock lock(mutex());
  Stream& stream = stream_of(handle);
  const Range* const into = range_of(to);
  const Range* const out_of = range_of(from);
  const bool to_device = is_device(into), from_device = is_device(out_of);
  if (!fits(to, into, bytes) || !fits(from, out_of, bytes)) {
    broken("a copy exceeds its source or destination");
  }
  if ((kind == cudaMemcpyHostToDevice && (!to_device || from_device)) ||
      (kind == cudaMemcpyDeviceToHost && (to_device || !from_device)) ||
      (kind == cudaMemcpyDeviceToDevice && (!to_device || !from_device))) {
    broken("the direction of a copy does not match its addresses");
  }
  const bool is_pageable =
      (to_device != from_device) && (to_device ? out_of == nullptr : into == nullptr);
  if (is_blocking && !may_wait("cudaMemcpy", nullptr)) {
    return answer(cudaErrorStreamCaptureImplicit);
  }
  if (stream.capture != nullptr && is_pageable) {
    refused("a copy of pageable memory during a capture");
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  if (to_device && from_device) {
    count("device_copies");
    const std::vector<char> content = remembered(from, bytes);
    content.empty() ? forget(to, bytes) : remember(to, bytes, content.data());
    add_work(stream, "copy from device to device");
    touch(stream, from, bytes, false, "a copy from device to device");
    touch(stream, to, bytes, true, "a copy from device to device");
    return cudaSuccess;
  }
  if (!to_device && !from_device) {
    std::memcpy(to, from, bytes);
    return cudaSuccess;
  }
  count(to_device ? "to_device_bytes" : "to_host_bytes", static_cast<int64_t>(bytes));
  if (is_pageable) {
    count("pageable_copies");
    host_waited(to_device ? "pageable copy to a device" : "pageable copy to the host");
  } else {
    count("pinned_copies");
  }
  add_work(stream, nullptr);
  const char* const what = to_device ? "a copy to the device" : "a copy to the host";
  touch(stream, from, bytes, false, what);
  touch(stream, to, bytes, true, what);
  if (to_device) {
    remember(to, bytes, from);
    if (!is_pageable) {
      add(stream,
          {Operation::Kind::kRead, nullptr, nullptr, const_cast<void*>(from), nullptr, bytes});
    }
  } else {
    std::memset(to, 0xff, bytes);
    add(stream, {Operation::Kind::kFill, nullptr, nullptr, to, from, bytes});
  }
  if (is_blocking) {
    count("waits");
    host_waited("cudaMemcpy");
  }
  if (is_blocking || (is_pageable && !to_device)) {
    const Clock clock = stream.clock;
    wait_for(lock, [&] { return is_idle(stream); });
    host_has_waited(clock);
  }
  return cudaSuccess;
}

cudaError_t set(void* to, size_t bytes, cudaStream_t handle) {
  const std::unique_lock lock(mutex());
  const Range* const into = range_of(to);
  if (bytes > 0 && (!is_device(into) || !fits(to, into, bytes))) {
    broken("a memset of memory that is not on a device");
  }
  forget(to, bytes);
  Stream& stream = stream_of(handle);
  add_work(stream, "memset");
  touch(stream, to, bytes, true, "memset");
  return cudaSuccess;
}

}  // namespace
}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, bytes, kind, nullptr, true);
}
cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy(to, from, bytes, kind, stream, false);
}
cudaError_t cudaMemcpyPeerAsync(
    void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream, false);
}
cudaError_t cudaMemset(void* to, int, size_t bytes) {
  return set(to, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* to, int, size_t bytes, cudaStream_t stream) {
  return set(to, bytes, stream);
}

}  // extern "C"
