// Layout of heads in memory, in the form that kernels read.
#pragma once

#include <cstdint>

namespace lockstep::ops {

/// Layout of tensors [B, T, H, D] with a dense last dimension. Strides are in elements.
struct RotatedHeads {
  int64_t rows = 0, length = 0, heads = 0, size = 0;  // B, T, H, D
  int64_t half = 0;                                   // values i and i + half form a pair
  bool angles_by_row = false;  // true: angles are [B, T, half]; false: [T, half]
  int64_t from_stride[3] = {}, to_stride[3] = {};  // strides of the first three dimensions
};

}  // namespace lockstep::ops
