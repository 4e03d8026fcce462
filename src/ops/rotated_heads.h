// Where the heads of tokens lie, for kernels.
#pragma once

#include <cstdint>

namespace lockstep::ops {

/// Tensors [B, T, H, D] whose heads' numbers are neighbours, in elements.
struct RotatedHeads {
  int64_t rows = 0, length = 0, heads = 0, size = 0;  // B, T, H, D
  int64_t half = 0;                                   // number i turns with number i + half
  bool angles_by_row = false;                         // [B, T, half] angles, else [T, half]
  int64_t from_stride[3] = {}, to_stride[3] = {};     // of the first three dims
};

}  // namespace lockstep::ops
