// Number of partial sums for squared gradient norms on a GPU.
#pragma once

#include <cstdint>

namespace lockstep::ops {

/// One for each block of a kernel that adds to them, so that the order of additions is fixed;
/// enough blocks for a large GPU.
inline constexpr int64_t kSquareSums = 512;

}  // namespace lockstep::ops
