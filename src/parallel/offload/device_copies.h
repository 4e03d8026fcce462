// Copies between host and device beside what the device computes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace lockstep::parallel {

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
  /// What the device is given from now on comes after the copies so far.
  void lead_compute();
  /// Does not block; the event is there when this and all earlier copies have ended.
  c10::Event start(const at::Tensor& to, const at::Tensor& from);

 private:
  c10::Stream current() const;
  c10::Stream stream_;
};

/// Host memory for the values of `tensor`, which holds them now: pinned where the tensor is on a
/// GPU, without the rounding to powers of two of libtorch's own allocator.
at::Tensor to_pinned_host(const at::Tensor& tensor);

}  // namespace lockstep::parallel
