// Unpacking of quantized weights with AVX-512. Compiled with separate instruction flags
// (cmake/Modules.cmake); see tile.h.
#if defined(__AVX512BW__)

#include <immintrin.h>

#include "ops/cpu/unpack_kernel.h"

namespace lockstep::ops::kernel {
namespace {

constexpr int64_t kLanes = 16;

/// Returns the mask of the first `count` lanes.
__mmask16 mask_of(int64_t count) {
  return count >= kLanes ? static_cast<__mmask16>(0xffff)
                         : static_cast<__mmask16>((1U << count) - 1);
}

/// Returns bits whose high halves are the nearest bfloat16 values.
__m512i rounded_bits(__m512 numbers) {
  const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(0x7fff);
  const __m512i bits = _mm512_castps_si512(numbers);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
  return _mm512_add_epi32(bits, _mm512_add_epi32(half, odd));
}

}  // namespace

void unpack_4_bits(
    const uint8_t* codes, int64_t count, const float* values, float scale, float* to) {
  const __m512 table = _mm512_loadu_ps(values), factor = _mm512_set1_ps(scale);
  // Duplicates each byte and shifts the first copy so that its high half moves down. A permutation
  // uses only the low four index bits.
  const __m128i twice = _mm_set_epi8(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  const __m512i shifts = _mm512_set_epi32(0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t bytes = (count - i + 1) / 2;
    const __mmask16 here =
        bytes >= 8 ? static_cast<__mmask16>(0xff) : static_cast<__mmask16>((1U << bytes) - 1);
    const __m128i read = _mm_maskz_loadu_epi8(here, codes + i / 2);
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_shuffle_epi8(read, twice));
    const __m512 numbers = _mm512_permutexvar_ps(_mm512_srlv_epi32(wide, shifts), table);
    _mm512_mask_storeu_ps(to + i, mask_of(count - i), _mm512_mul_ps(numbers, factor));
  }
}

void unpack_8_bits(const int8_t* codes, int64_t count, float scale, float* to) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int64_t i = 0; i < count; i += kLanes) {
    const __mmask16 here = mask_of(count - i);
    const __m512i wide = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(here, codes + i));
    _mm512_mask_storeu_ps(to + i, here, _mm512_mul_ps(_mm512_cvtepi32_ps(wide), factor));
  }
}

void round_to_bfloat16(const float* from, int64_t count, uint16_t* to) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const __mmask16 here = mask_of(count - i);
    const __m512i rounded = rounded_bits(_mm512_maskz_loadu_ps(here, from + i));
    _mm256_mask_storeu_epi16(to + i, here, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
  }
}

}  // namespace lockstep::ops::kernel

#endif
