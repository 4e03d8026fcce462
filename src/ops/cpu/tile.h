// Tiled matrix products with AVX-512, bfloat16 dot products and AMX, and the layouts that they
// read. Internal to ops: only for files that are compiled with these instructions and called after
// a check of machine.h. No function of this header may be shared with other files, because the
// linker might keep a version that other processors cannot run. Therefore all functions are in an
// anonymous namespace and do not use the standard library.
//
// Sizes along the summed dimension are counted in 32-bit *units*: a unit is one float or two
// adjacent bfloat16 values. The left operand is row-major, in rows of units. The right operand is a
// *panel* of 64 columns: panel[unit][64]. Sums are float32.
#pragma once

#include <cstdint>

#include <immintrin.h>

namespace lockstep::ops::kernel {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kPanel = 64;

/// A bfloat16 value, stored as bits.
struct Half {
  uint16_t bits;
};

inline int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}
inline int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

inline __m512 all(float value) {
  return _mm512_set1_ps(value);
}
inline __mmask16 first_lanes(int64_t count) {
  return count >= kLanes ? 0xffff : static_cast<__mmask16>((1U << count) - 1U);
}
inline __m512 widen(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
inline __m256i narrow(__m512 value) {
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value));
}

// Loads sixteen values, or the first `count` of them; the other lanes are 0.
inline __m512 load(const float* from) {
  return _mm512_loadu_ps(from);
}
inline __m512 load(const Half* from) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline __m512 load(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps(first_lanes(count), from);
}
inline __m512 load(const Half* from, int64_t count) {
  return widen(_mm256_maskz_loadu_epi16(first_lanes(count), from));
}
inline void store(float* to, __m512 value) {
  _mm512_storeu_ps(to, value);
}
inline void store(Half* to, __m512 value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow(value));
}
inline void store(float* to, __m512 value, int64_t count) {
  _mm512_mask_storeu_ps(to, first_lanes(count), value);
}
inline void store(Half* to, __m512 value, int64_t count) {
  _mm256_mask_storeu_epi16(to, first_lanes(count), narrow(value));
}

/// Rounds two vectors to bfloat16; `first` is in the lower half of the result.
inline __m512i rounded(__m512 first, __m512 second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}
/// Returns sixteen units (first[i], second[i]) from the two halves of `rounded`.
inline __m512i paired(__m512i rounded) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i second = _mm512_slli_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(16)), 16);
  return _mm512_permutexvar_epi16(_mm512_or_si512(first, second), rounded);
}
inline __m512i paired(__m512 first, __m512 second) {
  return paired(rounded(first, second));
}

/// Returns e^x for x up to 88; the result is about 1e-38 below -87. NaN propagates. The relative
/// error is below 3e-7.
inline __m512 exponential(__m512 x) {
  x = _mm512_max_ps(
      all(-87.3F), x);  // operand order matters: max returns its second operand if either is NaN
  const __m512 turns = _mm512_roundscale_ps(
      _mm512_mul_ps(x, all(1.44269504F)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(turns, all(0.693359375F), x);
  r = _mm512_fnmadd_ps(turns, all(-2.12194440e-4F), r);
  __m512 p = all(8.3334e-3F);
  p = _mm512_fmadd_ps(p, r, all(4.16666e-2F));
  p = _mm512_fmadd_ps(p, r, all(1.666666e-1F));
  p = _mm512_fmadd_ps(p, r, all(0.5F));
  p = _mm512_fmadd_ps(p, r, all(1));
  p = _mm512_fmadd_ps(p, r, all(1));
  return _mm512_scalef_ps(p, turns);
}

/// Returns 2^x for x below 128; the result is at least 2^-126. NaN propagates. The relative error
/// is below 4e-6, which is sufficient for results that are rounded to bfloat16 (2e-3), and it needs
/// half the operations of `exponential`.
inline __m512 power_of_two(__m512 x) {
  x = _mm512_max_ps(all(-126), x);  // operand order matters: max returns its second operand if
                                    // either is NaN
  const __m512 part = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = all(0.0135341679F);
  p = _mm512_fmadd_ps(p, part, all(0.0520114606F));
  p = _mm512_fmadd_ps(p, part, all(0.241442757F));
  p = _mm512_fmadd_ps(p, part, all(0.693003834F));
  p = _mm512_fmadd_ps(p, part, all(1.00000259F));
  return _mm512_scalef_ps(p, x);  // scales by 2 to the largest integer that does not exceed x
}

/// Returns tanh(x) = 1 - 2 / (1 + e^2x).
inline __m512 hyperbolic_tangent(__m512 x) {
  const __m512 e = exponential(_mm512_min_ps(all(60), _mm512_add_ps(x, x)));
  return _mm512_sub_ps(all(1), _mm512_div_ps(all(2), _mm512_add_ps(all(1), e)));
}

/// Left operand of a product: rows of units.
struct Left {
  const void* data;
  int64_t stride;       // in units
  bool is_far = false;  // in memory instead of a cache: vector products prefetch its rows
};

/// Properties of an instruction set. `Value` is the operand type; a unit has kUnit values. The
/// sizes of a product must be multiples of kRows, kColumns and kUnits. Products process
/// kUnitsAtOnce units of a panel at a time, which stay in the level-1 cache.
struct Fma {
  using Value = float;
  static constexpr int64_t kUnit = 1, kRows = 1, kColumns = 16, kUnits = 1, kUnitsAtOnce = 128;
  static __m512 multiply_add(__m512 sum, __m512 a, __m512 b) { return _mm512_fmadd_ps(a, b, sum); }
};
struct Dot {
  using Value = Half;
  static constexpr int64_t kUnit = 2, kRows = 1, kColumns = 16, kUnits = 1, kUnitsAtOnce = 128;
  static __m512 multiply_add(__m512 sum, __m512 a, __m512 b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};
struct Amx {
  using Value = Half;
  static constexpr int64_t kUnit = 2, kRows = 32, kColumns = 32, kUnits = 16;
  static constexpr int64_t kUnitsAtOnce = int64_t{1} << 40;  // unlimited: sums stay in tiles
};

enum class Sum { kNew, kAdded };

template <class Machine, int kRows, int kGroups>
inline void vector_tile(
    int64_t units, Left left, const float* panel, float* c, int64_t c_stride, Sum mode) {
  const auto* a = static_cast<const float*>(left.data);
  for (int64_t u = 0; u < units && left.is_far; u += kLanes) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {  // prefetch one cache line of each of the next rows
      __builtin_prefetch(a + (kRows + r) * left.stride + u);
    }
  }
  __m512 sum[kRows][kGroups];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      sum[r][g] = mode == Sum::kAdded ? _mm512_loadu_ps(c + r * c_stride + g * kLanes)
                                      : _mm512_setzero_ps();
    }
  }
  for (int64_t u = 0; u < units; ++u) {
    __m512 b[kGroups];
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      b[g] = _mm512_loadu_ps(panel + u * kPanel + g * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512 value = all(a[r * left.stride + u]);
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        sum[r][g] = Machine::multiply_add(sum[r][g], value, b[g]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      _mm512_storeu_ps(c + r * c_stride + g * kLanes, sum[r][g]);
    }
  }
}

template <class Machine, int kGroups>
void rows_by_panel(
    int64_t rows,
    int64_t units,
    Left left,
    const float* panel,
    float* c,
    int64_t c_stride,
    Sum mode) {
  while (rows > 0) {
    const int64_t step = least(rows, 6);
    switch (step) {
      case 6:
        vector_tile<Machine, 6, kGroups>(units, left, panel, c, c_stride, mode);
        break;
      case 5:
        vector_tile<Machine, 5, kGroups>(units, left, panel, c, c_stride, mode);
        break;
      case 4:
        vector_tile<Machine, 4, kGroups>(units, left, panel, c, c_stride, mode);
        break;
      case 3:
        vector_tile<Machine, 3, kGroups>(units, left, panel, c, c_stride, mode);
        break;
      case 2:
        vector_tile<Machine, 2, kGroups>(units, left, panel, c, c_stride, mode);
        break;
      default:
        vector_tile<Machine, 1, kGroups>(units, left, panel, c, c_stride, mode);
        break;
    }
    left.data = static_cast<const float*>(left.data) + step * left.stride;
    c += step * c_stride;
    rows -= step;
  }
}

/// Computes 2 x 2 tiles of 16 x 16, so that each loaded value is used twice.
inline void amx_tile(
    int64_t units, Left left, const float* panel, float* c, int64_t c_stride, Sum mode) {
  const auto* a = static_cast<const float*>(left.data);
  const int64_t a_bytes = left.stride * 4, b_bytes = kPanel * 4, c_bytes = c_stride * 4;
  float* below = c + kLanes * c_stride;
  // Prevents reordering, because the compiler does not know that tile loads read memory.
  __asm__ volatile("" ::: "memory");
  if (mode == Sum::kAdded) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + kLanes, c_bytes);
    _tile_loadd(2, below, c_bytes);
    _tile_loadd(3, below + kLanes, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t u = 0; u < units; u += kLanes) {
    _tile_loadd(4, a + u, a_bytes);
    _tile_loadd(6, panel + u * kPanel, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, panel + u * kPanel + kLanes, b_bytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kLanes * left.stride + u, a_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + kLanes, c_bytes);
  _tile_stored(2, below, c_bytes);
  _tile_stored(3, below + kLanes, c_bytes);
}

template <class Machine>
inline void columns_by_panel(
    int64_t rows,
    int64_t columns,
    int64_t units,
    Left left,
    const float* panel,
    float* c,
    int64_t c_stride,
    Sum mode) {
  switch (columns / kLanes) {
    case 4:
      return rows_by_panel<Machine, 4>(rows, units, left, panel, c, c_stride, mode);
    case 3:
      return rows_by_panel<Machine, 3>(rows, units, left, panel, c, c_stride, mode);
    case 2:
      return rows_by_panel<Machine, 2>(rows, units, left, panel, c, c_stride, mode);
    default:
      return rows_by_panel<Machine, 1>(rows, units, left, panel, c, c_stride, mode);
  }
}

/// Computes c [rows, columns] (row stride `c_stride`) = left x panel, or adds the product to c.
/// There are at most 64 columns. Sizes must be multiples of Machine's kRows, kColumns and kUnits.
template <class Machine>
inline void product(
    int64_t rows,
    int64_t columns,
    int64_t units,
    Left left,
    const float* panel,
    float* c,
    int64_t c_stride,
    Sum mode) {
  for (int64_t from = 0; from < units || from == 0; from += Machine::kUnitsAtOnce) {
    columns_by_panel<Machine>(
        rows,
        columns,
        least(Machine::kUnitsAtOnce, units - from),
        {static_cast<const float*>(left.data) + from, left.stride, left.is_far},
        panel + from * kPanel,
        c,
        c_stride,
        from == 0 ? mode : Sum::kAdded);
  }
}

template <>
inline void product<Amx>(
    int64_t rows,
    int64_t columns,
    int64_t units,
    Left left,
    const float* panel,
    float* c,
    int64_t c_stride,
    Sum mode) {
  for (int64_t r = 0; r < rows; r += Amx::kRows) {
    const Left some{static_cast<const float*>(left.data) + r * left.stride, left.stride};
    for (int64_t from = 0; from < columns; from += Amx::kColumns) {
      amx_tile(units, some, panel + from, c + r * c_stride + from, c_stride, mode);
    }
  }
}

/// RAII scope for AMX products: configures the thread's tiles and releases them.
template <class Machine>
struct TileState {};
template <>
struct TileState<Amx> {
  TileState() {
    // Eight tiles, each with 16 rows of 64 bytes.
    struct alignas(64) Configuration {
      uint8_t palette, start, reserved[14];
      uint16_t bytes[16];
      uint8_t rows[16];
    };
    static constexpr Configuration kTiles{
        1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&kTiles);
  }
  ~TileState() { _tile_release(); }
  TileState(const TileState&) = delete;
  TileState& operator=(const TileState&) = delete;
};

/// Transposes 16 x 16 units in registers.
inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

/// Transposes 16 x 16 units from rows with stride `from_stride` to rows with stride `to_stride`.
inline void transpose_units(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  __m512i rows[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) {
    rows[i] = _mm512_loadu_si512(from + i * from_stride);
  }
  transpose(rows);
  for (int64_t i = 0; i < kLanes; ++i) {
    _mm512_storeu_si512(to + i * to_stride, rows[i]);
  }
}

}  // namespace
}  // namespace lockstep::ops::kernel
