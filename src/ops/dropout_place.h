// Where the elements of a part of a tensor stand in the whole, for kernels.
#pragma once

#include <cstdint>

namespace lockstep::ops {

/// Of the dims after the first, outermost first.
struct DropoutPlace {
  static constexpr int kMostDims = 4;
  int dims = 0;
  int64_t size[kMostDims] = {}, begin[kMostDims] = {}, whole[kMostDims] = {};
};

}  // namespace lockstep::ops
