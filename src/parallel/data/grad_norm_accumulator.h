// Accumulates the squares of a flat unit's summed gradient for the gradient norm while the sum is
// still in a cache, which saves an extra pass.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "parallel/data/flat_unit.h"

namespace lockstep::parallel {

/// Returns the fraction of a parameter's squares that this rank counts, if ranks of other groups
/// also hold the parameter.
using ShareOfParameter = std::function<double(const std::string& name)>;

class GradNormAccumulator {
 public:
  /// `flat` must outlive this object. Without `share`, every parameter is counted in full.
  explicit GradNormAccumulator(const FlatUnit& flat, const ShareOfParameter& share = nullptr);
  /// Resets the sums for a new step.
  void clear();
  /// Counts the elements [begin, end) of the shard's gradient, which must be final. Not
  /// thread-safe.
  void count(int64_t begin, int64_t end);
  /// Adds the accumulated squares to `sum`, float64 [1] on the gradient's device.
  void add_to(Tensor& sum) const;

 private:
  struct Run {
    int64_t begin, end;
    double share;
  };

  const FlatUnit* flat_;
  std::vector<Run> runs_;  // ranges with different shares; empty: everything counts in full
  double in_host_memory_ = 0;
  Tensor on_device_;  // float64 partial sums
};

/// Copies or adds elements [begin, end) of `from` to `to`. If `count` is set, this is done in
/// cache-sized blocks and `count` is called for each. The tensors are flat and of equal length;
/// their types may differ.
enum class Written { kReplaced, kAdded };
void write_and_count(
    const Tensor& to,
    const Tensor& from,
    int64_t begin,
    int64_t end,
    Written how,
    const std::function<void(int64_t begin, int64_t end)>& count);

}  // namespace lockstep::parallel
