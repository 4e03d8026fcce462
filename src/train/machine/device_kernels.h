// GPU kernel trace of one step.
#pragma once

#include <filesystem>
#include <string>

#include <c10/core/Device.h>

namespace lockstep::train {

/// Records the kernels, copies and fills of this process's GPUs with libtorch's profiler (Kineto on
/// CUPTI). Recording begins on construction and ends with write(). Does nothing on a CPU. If
/// another profiler is active or the driver provides no counters, logs a warning and records
/// nothing.
class DeviceKernels {
 public:
  explicit DeviceKernels(c10::Device device);
  ~DeviceKernels();
  DeviceKernels(const DeviceKernels&) = delete;
  DeviceKernels& operator=(const DeviceKernels&) = delete;

  /// Waits for the device, stops recording and writes a trace for https://ui.perfetto.dev. Returns
  /// a table of the kernels with the longest times; empty if nothing was recorded. Must be called
  /// at most once, on the thread that called the constructor.
  std::string write(const std::filesystem::path& file);

 private:
  c10::Device device_;
  bool is_recording_ = false;
};

}  // namespace lockstep::train
