// The squares of a flat unit's summed gradient, for the norm: counted where the sum is made, while
// a cache holds it, so that the norm takes no pass of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "parallel/data/flat_unit.h"

namespace lockstep::parallel {

/// How much of a parameter's squares this rank counts, where ranks of other groups hold it too.
using ShareOfParameter = std::function<double(const std::string& name)>;

class GradNormAccumulator {
 public:
  /// Of `flat`, which must outlive it. Without a function all of each parameter is counted.
  explicit GradNormAccumulator(const FlatUnit& flat, const ShareOfParameter& share = nullptr);
  /// A new step: nothing was counted.
  void clear();
  /// Elements [begin, end) of the shard's gradient, which have their last values. One thread at a
  /// time.
  void count(int64_t begin, int64_t end);
  /// sum += what was counted; [1] float64, on the gradient's device.
  void add_to(Tensor& sum) const;

 private:
  struct Run {
    int64_t begin, end;
    double share;
  };

  const FlatUnit* flat_;
  std::vector<Run> runs_;  // of different shares; empty: all of it counts
  double in_host_memory_ = 0;
  Tensor on_device_;  // float64 sums, which are to be added
};

/// The elements of `to` in [begin, end) become those of `from`, or have them added, a cache's worth
/// at a time where they are counted. Flat tensors of one length; the types may differ.
enum class Written { kReplaced, kAdded };
void write_and_count(
    const Tensor& to,
    const Tensor& from,
    int64_t begin,
    int64_t end,
    Written how,
    const std::function<void(int64_t begin, int64_t end)>& count);

}  // namespace lockstep::parallel
