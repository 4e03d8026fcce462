// Maps elements of a shard to positions in the whole parameter. Internal to optim.
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Row and column indices of a rank's slice of a matrix (tensor parallelism) or of the whole
/// matrix.
class MatrixPlaces {
 public:
  MatrixPlaces() = default;
  /// `segment` must have two dimensions.
  MatrixPlaces(const Segment& segment, at::Device device);

  /// Returns the row and column indices in the whole matrix for the elements [first, first + count)
  /// of the rank's slice.
  std::pair<at::Tensor, at::Tensor> of(int64_t first, int64_t count) const;

 private:
  int64_t own_columns_ = 0;
  at::Device device_ = at::kCPU;
  at::Tensor rows_, columns_;  // slice index -> whole index; undefined: identity
};

/// Returns the shape of the whole parameter to which a segment belongs.
inline const std::vector<int64_t>& whole_shape(const Segment& segment) {
  return segment.whole_shape.empty() ? segment.shape : segment.whole_shape;
}

}  // namespace lockstep::optim
