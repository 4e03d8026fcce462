// Accumulates the squares of a flat unit's summed gradient for the norm while the sum is in a
// cache, so that the norm needs no extra pass.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "parallel/data/flat_unit.h"

namespace lockstep::parallel {

/// Share of a parameter's squares that this rank counts, if ranks of other groups hold it too.
using ShareOfParameter = std::function<double(const std::string& name)>;

class GradNormAccumulator {
 public:
  /// For `flat`, which must outlive it. Without a function every parameter is counted in full.
  explicit GradNormAccumulator(const FlatUnit& flat, const ShareOfParameter& share = nullptr);
  /// Resets the sums for a new step.
  void clear();
  /// Counts elements [begin, end) of the shard's gradient, which must be final. One thread at a
  /// time.
  void count(int64_t begin, int64_t end);
  /// sum += counted squares; [1] float64 on the gradient's device.
  void add_to(Tensor& sum) const;

 private:
  struct Run {
    int64_t begin, end;
    double share;
  };

  const FlatUnit* flat_;
  std::vector<Run> runs_;  // of different shares; empty: all of it counts
  double in_host_memory_ = 0;
  Tensor on_device_;  // float64 partial sums
};

/// Copies or adds elements [begin, end) of `from` to `to`, in cache-sized blocks if they are
/// counted. Flat tensors of one length; the types may differ.
enum class Written { kReplaced, kAdded };
void write_and_count(
    const Tensor& to,
    const Tensor& from,
    int64_t begin,
    int64_t end,
    Written how,
    const std::function<void(int64_t begin, int64_t end)>& count);

}  // namespace lockstep::parallel
