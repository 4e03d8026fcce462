// Row loops with AVX-512. Compiled with separate instruction flags (cmake/Modules.cmake); see
// tile.h.
#if defined(__AVX512BW__)

#include <immintrin.h>

#include "ops/cpu/row_loops_of.h"

namespace lockstep::ops::kernel {
namespace {

struct Registers {
  static constexpr int kLanes = 16;
  using Numbers = __m512;
  using Table = __m512;
  using Codes = __m512i;

  static Numbers load(const float* from) { return _mm512_loadu_ps(from); }
  static Numbers load(const uint16_t* from) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static Numbers load(const int8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }
  static void store(float* to, Numbers value) { _mm512_storeu_ps(to, value); }
  static Numbers zero() { return _mm512_setzero_ps(); }
  static Numbers splat(float value) { return _mm512_set1_ps(value); }
  static Numbers multiply_add(Numbers a, Numbers b, Numbers c) { return _mm512_fmadd_ps(a, b, c); }
  static float sum(Numbers value) {
    alignas(64) float lanes[kLanes];
    _mm512_store_ps(lanes, value);
    float sum = 0;
    for (const float lane : lanes) {
      sum += lane;
    }
    return sum;
  }

  static Table table_of(const float* values) { return _mm512_loadu_ps(values); }
  static Codes load_codes(const uint8_t* from) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  /// A permutation uses only the low four index bits.
  static Numbers look_up(Table table, Codes codes, unsigned shift) {
    return _mm512_permutexvar_ps(_mm512_srli_epi32(codes, shift), table);
  }
};

}  // namespace

const RowLoops kRowLoopsAvx512 = RowLoopsOf<Registers>::all();

}  // namespace lockstep::ops::kernel

#endif
