// Normal random numbers by position in a stream, sixteen at a time.
#pragma once

#include <cstdint>

namespace lockstep::ops {

/// Draws normal numbers with mean 0: out[i] is element begin + i of the stream of `key`
/// (base/counter_random.h), for i < count. Elements 2n and 2n + 1 are a Box-Muller (1958) pair from
/// the two halves of word n. The bits are the same on every processor and with every C library.
void draw_normal(uint64_t key, float deviation, int64_t begin, int64_t count, float* out);

}  // namespace lockstep::ops
