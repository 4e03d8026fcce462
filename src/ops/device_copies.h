// Copies between host and device that overlap with device computation.
#pragma once

#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace lockstep::ops {

using at::Tensor;

/// A device stream that runs copies sequentially. Host tensors must be pinned and must stay alive
/// until the copies have ended. Not thread-safe.
class DeviceCopies {
 public:
  explicit DeviceCopies(c10::Device device);
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;
  /// Waits for all copies of this stream.
  ~DeviceCopies() { stream_.synchronize(); }

  /// Makes subsequent copies wait for the work that is already queued on the compute stream.
  void follow_compute();
  /// Makes the compute stream wait for all copies so far, or for the copies before an event, before
  /// it runs work that is queued later.
  void lead_compute() { lead_compute(now()); }
  void lead_compute(const c10::Event& copied) { copied.block(current()); }
  /// Starts a copy without blocking. The returned event is recorded when this copy and all earlier
  /// ones have ended.
  c10::Event start(const Tensor& to, const Tensor& from);
  /// Runs `body` with this stream as the current stream. The returned event is recorded when the
  /// work of `body` has ended.
  c10::Event run(const std::function<void()>& body);

 private:
  c10::Stream current() const;
  c10::Event now() const;
  c10::Stream stream_;
};

/// Pins host pages for the lifetime of the returned object. Returns null if there is no GPU, or,
/// with a warning, if the system cannot pin more memory.
std::shared_ptr<void> pin_host(void* memory, int64_t bytes);
/// Returns a host tensor of `bytes` uint8 elements, pinned if `is_pinned`. Unlike libtorch's pinned
/// allocator, does not round the size up to a power of two.
Tensor host_bytes(int64_t bytes, bool is_pinned);
/// Returns a host tensor with the shape and type of `tensor`, pinned if `tensor` is on a GPU.
Tensor host_like(const Tensor& tensor);

}  // namespace lockstep::ops
