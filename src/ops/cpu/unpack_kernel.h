// Loops of packed weights for AVX-512, called where the processor has it (machine.h). They give the
// bits that the plain loops give.
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// to[i] = values[code i] * scale, of `count` codes of 4 bits from the high half of codes[0] on.
void unpack_4_bits(
    const uint8_t* codes, int64_t count, const float* values, float scale, float* to);
/// to[i] = codes[i] * scale
void unpack_8_bits(const int8_t* codes, int64_t count, float scale, float* to);
/// To the nearest bfloat16, of two as near the even one; no NaN.
void round_to_bfloat16(const float* from, int64_t count, uint16_t* to);

}  // namespace lockstep::ops::kernel
