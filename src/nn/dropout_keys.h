// Dropout keys of a pass in a fixed device buffer, so that captured CUDA graphs draw new masks when
// the buffer is updated.
#pragma once

#include <cstdint>
#include <map>

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

using at::Tensor;

/// Returns the key of a dropout's mask for one sample in one step.
uint64_t dropout_key(uint64_t seed, int64_t step, int64_t sample, int64_t site);

/// All passes must have the same number of rows and the same dropout sites, namely those requested
/// before the second begin(). Not thread-safe.
class DropoutKeys {
 public:
  explicit DropoutKeys(c10::Device device) : device_(device) {}

  /// Sets the keys for this step and these samples, [B] int64 on the CPU. Runs on the current
  /// stream.
  void begin(uint64_t seed, int64_t step, const Tensor& samples);
  /// Returns [B] int64 on the device. Throws Error (kInternal) for a site that the first step did
  /// not have.
  Tensor of_site(int64_t site);

 private:
  /// Returns the keys of all known sites, [sites, B] on the CPU.
  Tensor numbers() const;

  c10::Device device_;
  std::map<int64_t, int64_t> sites_;  // site -> row of keys_, in the order of the first request
  Tensor keys_;                       // [sites, B] on the device, from the second step on
  uint64_t seed_ = 0;
  int64_t step_ = 0, begun_ = 0;
  Tensor samples_;
};

}  // namespace lockstep::nn
