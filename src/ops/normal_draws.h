// Normal numbers by position, sixteen at a time.
#pragma once

#include <cstdint>

namespace lockstep::ops {

/// Draws of mean 0: out[i] is element begin + i of the stream of `key` (base/counter_random.h), for
/// i < count. Elements 2n and 2n + 1 are a pair of Box and Muller's (1958) from the two halves of
/// word n. The same bits on every processor and with every C library.
void draw_normal(uint64_t key, float deviation, int64_t begin, int64_t count, float* out);

}  // namespace lockstep::ops
