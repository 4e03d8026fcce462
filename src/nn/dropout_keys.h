// Dropout keys of a pass in a device buffer at a fixed address, so that a captured CUDA graph uses
// new masks after the buffer has been updated.
#pragma once

#include <cstdint>
#include <map>

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

using at::Tensor;

/// Returns the key of the mask of one dropout for one sample in one step.
uint64_t dropout_key(uint64_t seed, int64_t step, int64_t sample, int64_t site);

/// All passes must have the same number of rows and the same dropout sites: those that were
/// requested before the second begin(). Not thread-safe.
class DropoutKeys {
 public:
  explicit DropoutKeys(c10::Device device) : device_(device) {}

  /// Sets the keys for this step and these samples, [B] int64 on the CPU. Runs on the current
  /// stream.
  void begin(uint64_t seed, int64_t step, const Tensor& samples);
  /// Returns the keys of a site, [B] int64 on the device. Throws Error (kInternal) if the site was
  /// not requested in the first step.
  Tensor of_site(int64_t site);

 private:
  /// Returns the keys of all known sites, [sites, B] on the CPU.
  Tensor numbers() const;

  c10::Device device_;
  std::map<int64_t, int64_t> sites_;  // site -> row of keys_, numbered by first request
  Tensor keys_;                       // [sites, B] on the device; defined from the second step on
  uint64_t seed_ = 0;
  int64_t step_ = 0, begun_ = 0;
  Tensor samples_;
};

}  // namespace lockstep::nn
