// Row loops with AVX2. Compiled with separate instruction flags (cmake/Modules.cmake); see tile.h.
#if defined(__AVX2__)

#include <immintrin.h>

#include "ops/cpu/row_loops_of.h"

namespace lockstep::ops::kernel {
namespace {

struct Registers {
  static constexpr int kLanes = 8;
  using Numbers = __m256;
  struct Table {
    __m256 low, high;
  };
  using Codes = __m256i;

  static Numbers load(const float* from) { return _mm256_loadu_ps(from); }
  static Numbers load(const uint16_t* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static Numbers load(const int8_t* from) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
  static void store(float* to, Numbers value) { _mm256_storeu_ps(to, value); }
  static Numbers zero() { return _mm256_setzero_ps(); }
  static Numbers splat(float value) { return _mm256_set1_ps(value); }
  static Numbers multiply_add(Numbers a, Numbers b, Numbers c) { return _mm256_fmadd_ps(a, b, c); }
  static float sum(Numbers value) {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps(value, 1));
    const __m128 two = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }

  static Table table_of(const float* values) {
    return {_mm256_loadu_ps(values), _mm256_loadu_ps(values + 8)};
  }
  static Codes load_codes(const uint8_t* from) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  /// A permutation uses three index bits. The fourth bit, moved to the sign, selects between two
  /// results.
  static Numbers look_up(const Table& table, Codes codes, int shift) {
    const __m256i at = _mm256_srli_epi32(codes, shift);
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28 - shift));
    return _mm256_blendv_ps(
        _mm256_permutevar8x32_ps(table.low, at), _mm256_permutevar8x32_ps(table.high, at), upper);
  }
};

}  // namespace

const RowLoops kRowLoopsAvx2 = RowLoopsOf<Registers>::all();

}  // namespace lockstep::ops::kernel

#endif
