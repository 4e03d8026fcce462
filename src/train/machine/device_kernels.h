// What a GPU ran in a traced step.
#pragma once

#include <filesystem>
#include <string>

#include <c10/core/Device.h>

namespace lockstep::train {

/// Records the kernels, copies and fills of this process's GPUs from its construction to write(),
/// by libtorch's profiler (Kineto on CUPTI). On a CPU it does nothing. Beside another profiler, or
/// where the driver gives no counters, it warns and records nothing.
class DeviceKernels {
 public:
  explicit DeviceKernels(c10::Device device);
  ~DeviceKernels();
  DeviceKernels(const DeviceKernels&) = delete;
  DeviceKernels& operator=(const DeviceKernels&) = delete;

  /// Waits for the device, and ends it, once per object, on the same thread. Writes what
  /// https://ui.perfetto.dev opens, and returns a table of what took longest; empty where nothing
  /// was recorded.
  std::string write(const std::filesystem::path& file);

 private:
  c10::Device device_;
  bool is_recording_ = false;
};

}  // namespace lockstep::train
