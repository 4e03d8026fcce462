// Number of partial sums used for the squared gradient norm on a GPU.
#pragma once

#include <cstdint>

namespace lockstep::ops {

/// Number of partial sums. Each block of the kernel adds to its own sum, so that the order of
/// additions is fixed. This number of blocks occupies a large GPU.
inline constexpr int64_t kSquareSums = 512;

}  // namespace lockstep::ops
