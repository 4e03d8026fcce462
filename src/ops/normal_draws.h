// Vectorized normal random numbers by position in a stream.
#pragma once

#include <cstdint>

namespace lockstep::ops {

/// Generates normal random numbers with mean 0: out[i], for i < count, is element begin + i of the
/// stream of `key` (base/counter_random.h). Elements 2n and 2n + 1 are a Box-Muller (1958) pair
/// computed from the two halves of word n. The bits are the same on every processor and with every
/// C library.
void draw_normal(uint64_t key, float deviation, int64_t begin, int64_t count, float* out);

}  // namespace lockstep::ops
