// How many sums the squares of gradients are added up in on a GPU.
#pragma once

#include <cstdint>

namespace lockstep::ops {

/// One for each block of a kernel that adds to them, so that their order does not change: as many
/// as keep a large GPU busy.
inline constexpr int64_t kSquareSums = 512;

}  // namespace lockstep::ops
