// Copies between host and device beside what the device computes.
#pragma once

#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace lockstep::ops {

using at::Tensor;

/// A stream of the device's for copies, one after the other. The host's tensors must be pinned, and
/// stay until the copies have ended. One thread uses it.
class DeviceCopies {
 public:
  explicit DeviceCopies(c10::Device device);
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;
  /// Waits for its copies.
  ~DeviceCopies() { stream_.synchronize(); }

  /// What the device has been given to compute so far comes before the copies that follow.
  void follow_compute();
  /// What the device is given from now on comes after the copies so far, or those until an event.
  void lead_compute() { lead_compute(now()); }
  void lead_compute(const c10::Event& copied) { copied.block(current()); }
  /// Does not block; the event is there when this and all earlier copies have ended.
  c10::Event start(const Tensor& to, const Tensor& from);
  /// The same of what `body` gives to the device.
  c10::Event run(const std::function<void()>& body);

 private:
  c10::Stream current() const;
  c10::Event now() const;
  c10::Stream stream_;
};

/// Pins pages of the host's for copies until the result is gone; null: there is no GPU, or the
/// system pins no more, which a warning tells.
std::shared_ptr<void> pin_host(void* memory, int64_t bytes);
/// [bytes] uint8 of the host's, pinned if `is_pinned`: without the rounding to powers of two of
/// libtorch's own allocator, and so of a size that stays.
Tensor host_bytes(int64_t bytes, bool is_pinned);
/// The same for as many values as `tensor` has, of its type and shape; pinned where it is on a GPU.
Tensor host_like(const Tensor& tensor);

}  // namespace lockstep::ops
