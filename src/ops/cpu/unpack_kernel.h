// AVX-512 loops for packed weights, used if the processor supports them (machine.h). They produce
// the same bits as the plain loops.
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// Computes to[i] = values[code i] * scale for `count` 4-bit codes, starting at the high half of
/// codes[0].
void unpack_4_bits(
    const uint8_t* codes, int64_t count, const float* values, float scale, float* to);
/// Computes to[i] = codes[i] * scale.
void unpack_8_bits(const int8_t* codes, int64_t count, float scale, float* to);
/// Rounds to the nearest bfloat16, ties to even. Values must not be NaN.
void round_to_bfloat16(const float* from, int64_t count, uint16_t* to);

}  // namespace lockstep::ops::kernel
