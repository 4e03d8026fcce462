// Position of a slice in the whole tensor, in the form that kernels read.
#pragma once

#include <cstdint>

namespace lockstep::ops {

/// Sizes and starts of all dimensions after the first, outermost first.
struct DropoutPlace {
  static constexpr int kMostDims = 4;
  int dims = 0;
  int64_t size[kMostDims] = {}, begin[kMostDims] = {}, whole[kMostDims] = {};
};

}  // namespace lockstep::ops
