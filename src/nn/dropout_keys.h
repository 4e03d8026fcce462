// The keys of all dropouts of a pass as numbers that lie on a device, in one place from step to
// step: what was captured with them draws anew whenever they are changed.
#pragma once

#include <cstdint>
#include <map>

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

using at::Tensor;

/// The key of a dropout's mask of one sample in one step.
uint64_t dropout_key(uint64_t seed, int64_t step, int64_t sample, int64_t site);

/// For passes of one number of rows, and of the same dropouts: those that are asked for before the
/// second begin(). Not thread-safe.
class DropoutKeys {
 public:
  explicit DropoutKeys(c10::Device device) : device_(device) {}

  /// From here on the keys are those of this step and these samples, [B] int64 on the CPU. On the
  /// current stream.
  void begin(uint64_t seed, int64_t step, const Tensor& samples);
  /// [B] int64 on the device. Error (kInternal): a site that the first step did not have.
  Tensor of_site(int64_t site);

 private:
  /// Of all sites that are known, [sites, B] on the CPU.
  Tensor numbers() const;

  c10::Device device_;
  std::map<int64_t, int64_t> sites_;  // -> row of keys_, in the order in which they were asked for
  Tensor keys_;                       // [sites, B] on the device, from the second step on
  uint64_t seed_ = 0;
  int64_t step_ = 0, begun_ = 0;
  Tensor samples_;
};

}  // namespace lockstep::nn
