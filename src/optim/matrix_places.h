// Where the elements of a shard stand in the whole parameter: internal to optim.
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Rows and columns of a matrix of which a rank has a part (tensor parallelism), or all.
class MatrixPlaces {
 public:
  MatrixPlaces() = default;
  /// Of a segment of two dims.
  MatrixPlaces(const Segment& segment, at::Device device);

  /// Of the elements [first, first + count) of the rank's part: rows, and columns, of the whole.
  std::pair<at::Tensor, at::Tensor> of(int64_t first, int64_t count) const;

 private:
  int64_t own_columns_ = 0;
  at::Device device_ = at::kCPU;
  at::Tensor rows_, columns_;  // of the part, in the whole; undefined: where they are
};

/// The shape of the parameter that a segment is a part of.
inline const std::vector<int64_t>& whole_shape(const Segment& segment) {
  return segment.whole_shape.empty() ? segment.shape : segment.whole_shape;
}

}  // namespace lockstep::optim
