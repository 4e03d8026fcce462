// Kernels that round operands to 8-bit floats.
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "cuda/float8.h"
#include "cuda/launch.h"
#include "cuda/number.h"
#include "cuda/pack.h"

namespace lockstep::cuda {
namespace {

// A line is a contiguous run of values: a row, or a column if the rows are strided. Each thread
// loads one pack of each of several lines before it uses any of them.
constexpr int kPackOfFloat8 = 8;  // 16 bytes of bfloat16
constexpr int kThreadsOfFloat8 = 256, kWarpOfFloat8 = 32;
constexpr int kWarpsOfFloat8 = kThreadsOfFloat8 / kWarpOfFloat8;
constexpr int kLoadsOfFloat8 = 4;

using Numbers = Pack<__nv_bfloat16, kPackOfFloat8>;

struct Lines {
  const __nv_bfloat16* from;
  int64_t count, size, stride;

  /// Returns true if aligned packs can be loaded everywhere. Each pack is then inside a line or
  /// beyond its end.
  bool hold_packs() const {
    return size % kPackOfFloat8 == 0 && stride % kPackOfFloat8 == 0 &&
           begins_pack(from, sizeof(Numbers));
  }
  /// Returns a pack of a line; zeros beyond the ends.
  template <bool kPacked>
  __device__ Numbers numbers(int64_t line, int64_t begin) const {
    const __nv_bfloat16* at = from + line * stride + begin;
    if constexpr (kPacked) {
      return line < count && begin < size ? load<kPackOfFloat8>(at) : Numbers{};
    } else {
      return load_some<kPackOfFloat8>(at, line < count ? size - begin : 0);
    }
  }
};

template <bool kLinesAreRows>
__host__ __device__ Lines lines_of(const FactoredRows& in) {
  const auto* from = static_cast<const __nv_bfloat16*>(in.from);
  return kLinesAreRows ? Lines{from, in.rows, in.columns, in.row_stride}
                       : Lines{from, in.columns, in.rows, in.column_stride};
}

__device__ uint32_t bits_of(float x) {
  uint32_t bits = 0;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
__device__ float float_of(uint32_t bits) {
  float x = 0;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

/// Returns the factors from `begin` on, up to `count`. If `from` is null, all factors are 1.
template <bool kPacked>
__device__ Pack<float, kPackOfFloat8> some_factors(
    const float* from, int64_t stride, int64_t begin, int64_t count) {
  Pack<float, kPackOfFloat8> factors;
  if (kPacked && from != nullptr && stride == 1 && begin < count &&
      begins_pack(from, sizeof(Pack<float, 4>))) {
    const auto low = load<4>(from + begin), high = load<4>(from + begin + 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      factors.at[i] = low.at[i];
      factors.at[i + 4] = high.at[i];
    }
    return factors;
  }
#pragma unroll
  for (int i = 0; i < kPackOfFloat8; ++i) {
    factors.at[i] = from != nullptr && begin + i < count ? from[(begin + i) * stride] : 1;
  }
  return factors;
}

/// Compares magnitudes by their bits. NaN is larger than all numbers.
__device__ void take_larger(uint32_t& most, float x) {
  const uint32_t bits = bits_of(x) & 0x7FFFFFFFU;
  most = bits > most ? bits : most;
}

/// Returns the single common factor, which is applied to the result; 1 if there is none.
__device__ float common_factor(const FactoredRows& in) {
  return in.factors != nullptr && in.factor_of_column == 0 ? in.factors[0] : 1;
}
__device__ const float* factors_of_columns(const FactoredRows& in) {
  return in.factor_of_column == 0 ? nullptr : in.factors;
}

/// Uses one warp per row.
template <bool kPacked>
__global__ void __launch_bounds__(kThreadsOfFloat8)
    largest_kernel_of_rows(FactoredRows in, float* largest) {
  constexpr int kStep = kWarpOfFloat8 * kPackOfFloat8;
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * kWarpsOfFloat8 + threadIdx.x / kWarpOfFloat8;
  if (row >= in.rows) {
    return;
  }
  const int lane = static_cast<int>(threadIdx.x % kWarpOfFloat8);
  const Lines lines = lines_of<true>(in);
  const float* const factors = factors_of_columns(in);
  uint32_t most = 0;
  for (int64_t first = lane * kPackOfFloat8; first < in.columns; first += kLoadsOfFloat8 * kStep) {
    Numbers numbers[kLoadsOfFloat8];
#pragma unroll
    for (int n = 0; n < kLoadsOfFloat8; ++n) {
      numbers[n] = lines.numbers<kPacked>(row, first + n * kStep);
    }
#pragma unroll
    for (int n = 0; n < kLoadsOfFloat8; ++n) {
      const auto of_columns =
          some_factors<kPacked>(factors, in.factor_of_column, first + n * kStep, in.columns);
#pragma unroll
      for (int i = 0; i < kPackOfFloat8; ++i) {
        take_larger(most, widen(numbers[n].at[i]) * of_columns.at[i]);
      }
    }
  }
  for (int step = kWarpOfFloat8 / 2; step > 0; step /= 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffU, most, step);
    most = other > most ? other : most;
  }
  if (lane == 0) {
    largest[row] = float_of(most) * common_factor(in);
  }
}

constexpr int kRowsOfBlock = kWarpOfFloat8 * kPackOfFloat8;  // number of adjacent rows
constexpr int kColumnsOfBlock = 128;

/// Each block processes some rows and some of their columns. Blocks that process the same rows
/// combine their results in `largest`.
template <bool kPacked>
__global__ void __launch_bounds__(kThreadsOfFloat8)
    largest_kernel_of_columns(FactoredRows in, float* largest) {
  const auto groups = static_cast<unsigned>((in.rows + kRowsOfBlock - 1) / kRowsOfBlock);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x % groups) * kRowsOfBlock;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x / groups) * kColumnsOfBlock;
  const int lane = static_cast<int>(threadIdx.x % kWarpOfFloat8);
  const int warp = static_cast<int>(threadIdx.x / kWarpOfFloat8);
  const Lines lines = lines_of<false>(in);
  const float* const factors = factors_of_columns(in);
  uint32_t most[kPackOfFloat8] = {};
  for (int done = 0; done < kColumnsOfBlock; done += kLoadsOfFloat8 * kWarpsOfFloat8) {
    const int64_t column = first_column + done + warp;
    Numbers numbers[kLoadsOfFloat8];
#pragma unroll
    for (int n = 0; n < kLoadsOfFloat8; ++n) {
      numbers[n] =
          lines.numbers<kPacked>(column + n * kWarpsOfFloat8, first_row + lane * kPackOfFloat8);
    }
#pragma unroll
    for (int n = 0; n < kLoadsOfFloat8; ++n) {
      const int64_t at = column + n * kWarpsOfFloat8;
      const float factor =
          factors != nullptr && at < in.columns ? factors[at * in.factor_of_column] : 1;
#pragma unroll
      for (int i = 0; i < kPackOfFloat8; ++i) {
        take_larger(most[i], widen(numbers[n].at[i]) * factor);
      }
    }
  }
  __shared__ uint32_t found[kWarpsOfFloat8][kPackOfFloat8][kWarpOfFloat8];
  begin_shared(found);
#pragma unroll
  for (int i = 0; i < kPackOfFloat8; ++i) {
    found[warp][i][lane] = most[i];
  }
  __syncthreads();
  static_assert(kThreadsOfFloat8 == kRowsOfBlock);
  uint32_t of_row = 0;
  for (int other = 0; other < kWarpsOfFloat8; ++other) {
    const uint32_t one = found[other][warp][lane];
    of_row = one > of_row ? one : of_row;
  }
  const int64_t row = first_row + lane * kPackOfFloat8 + warp;
  if (row < in.rows) {
    atomicMax(
        reinterpret_cast<unsigned*>(largest + row), bits_of(float_of(of_row) * common_factor(in)));
  }
}

/// Computes the scale as ops/float8.cpp does.
__device__ uint32_t scale_bits(float largest, bool has_e5m2) {
  constexpr uint32_t kExponent = 1U << 23;
  const uint32_t raised = (bits_of(largest) & 0x7FFFFFFFU) + kExponent / 4 - 1;
  const uint32_t top = (has_e5m2 ? 15 : 8) * kExponent;
  return raised < top + kExponent ? kExponent : (raised - top) & 0x7F800000U;
}

/// Returns the reciprocal of the scale, or NaN if `largest` is NaN or Inf. Otherwise GPU
/// conversions would saturate such values to the largest number.
__device__ float reciprocal_of_scale(float largest, bool has_e5m2) {
  const bool is_finite = (bits_of(largest) & 0x7FFFFFFFU) < 0x7F800000U;
  return float_of(is_finite ? 254U * (1U << 23) - scale_bits(largest, has_e5m2) : 0x7FC00000U);
}

/// Number of threads of a block along a line, and the size of the tile that the block rounds.
template <bool kTurned>
struct Tile {
  static constexpr int kAcross = kTurned ? 8 : 32, kDown = kThreadsOfFloat8 / kAcross;
  static constexpr int kWide = kAcross * kPackOfFloat8, kHigh = kDown * kLoadsOfFloat8;
};

/// Codes that a thread computes: words[i] has the code of the i-th value of each of its lines.
struct Codes {
  uint32_t words[kPackOfFloat8];
};

template <bool kLinesAreRows, bool kPacked, bool kHasE5m2>
__device__ Codes codes_of(
    const FactoredRows& in,
    const float* largest,
    bool is_by_row,
    int64_t first_line,
    int64_t begin) {
  constexpr auto kType = kHasE5m2 ? __NV_E5M2 : __NV_E4M3;
  const Lines lines = lines_of<kLinesAreRows>(in);
  Numbers numbers[kLoadsOfFloat8];
#pragma unroll
  for (int n = 0; n < kLoadsOfFloat8; ++n) {
    numbers[n] = lines.numbers<kPacked>(first_line + n, begin);
  }
  auto of_numbers = kLinesAreRows
                        ? some_factors<kPacked>(in.factors, in.factor_of_column, begin, in.columns)
                        : some_factors<kPacked>(largest, is_by_row ? 1 : 0, begin, in.rows);
  float of_lines[kLoadsOfFloat8];
#pragma unroll
  for (int n = 0; n < kLoadsOfFloat8; ++n) {
    const int64_t line = first_line + n < lines.count ? first_line + n : 0;
    of_lines[n] = kLinesAreRows ? reciprocal_of_scale(largest[is_by_row ? line : 0], kHasE5m2)
                  : in.factors == nullptr ? 1
                                          : in.factors[line * in.factor_of_column];
  }
  Codes codes;
#pragma unroll
  for (int i = 0; i < kPackOfFloat8; ++i) {
    if (!kLinesAreRows) {
      of_numbers.at[i] = reciprocal_of_scale(of_numbers.at[i], kHasE5m2);
    }
    float x[kLoadsOfFloat8];
#pragma unroll
    for (int n = 0; n < kLoadsOfFloat8;
         ++n) {  // the factor is applied first, as in the kernels that find the largest magnitude
      const float number = widen(numbers[n].at[i]);
      x[n] = kLinesAreRows ? number * of_numbers.at[i] * of_lines[n]
                           : number * of_lines[n] * of_numbers.at[i];
    }
    const uint32_t low = __nv_cvt_float2_to_fp8x2(float2{x[0], x[1]}, __NV_SATFINITE, kType);
    const uint32_t high = __nv_cvt_float2_to_fp8x2(float2{x[2], x[3]}, __NV_SATFINITE, kType);
    codes.words[i] = low | high << 16;
  }
  return codes;
}

template <int N>
__device__ void write_codes(const Pack<uint8_t, N>& codes, uint8_t* to, int64_t count) {
  if (count >= N && begins_pack(to, N)) {
    store(codes, to);
  } else {
    store_some(codes, to, count);
  }
}

/// Uses one block per tile. kTurned: the lines that are read are perpendicular to those that are
/// written.
template <bool kLinesAreRows, bool kTurned, bool kPacked, bool kHasE5m2>
__global__ void __launch_bounds__(kThreadsOfFloat8)
    round_kernel(FactoredRows in, const float* largest, Float8Out out) {
  using T = Tile<kTurned>;
  const Lines lines = lines_of<kLinesAreRows>(in);
  const auto tiles = static_cast<unsigned>((lines.size + T::kWide - 1) / T::kWide);
  const int64_t tile_line = static_cast<int64_t>(blockIdx.x / tiles) * T::kHigh;
  const int64_t tile_begin = static_cast<int64_t>(blockIdx.x % tiles) * T::kWide;
  const int across = static_cast<int>(threadIdx.x % T::kAcross);
  const int down = static_cast<int>(threadIdx.x / T::kAcross);
  const int64_t line = tile_line + down * kLoadsOfFloat8;
  const int64_t begin = tile_begin + across * kPackOfFloat8;
  const Codes codes =
      codes_of<kLinesAreRows, kPacked, kHasE5m2>(in, largest, out.is_by_row, line, begin);
  const int64_t scale = static_cast<int64_t>(blockIdx.x) * kThreadsOfFloat8 + threadIdx.x;
  if (scale < (out.is_by_row ? in.rows : 1)) {  // there may be more threads than rows
    out.scales[scale] = float_of(scale_bits(largest[scale], kHasE5m2));
  }
  const int64_t line_stride = kLinesAreRows ? out.row_stride : out.column_stride;
  const int64_t number_stride = kLinesAreRows ? out.column_stride : out.row_stride;
  if constexpr (kTurned) {
    constexpr int kChunk = 16, kChunks = T::kHigh / kChunk;
    __shared__ uint32_t turned[T::kWide][T::kDown + 1];
    begin_shared(turned);
#pragma unroll
    for (int i = 0; i < kPackOfFloat8; ++i) {
      turned[across * kPackOfFloat8 + i][down] = codes.words[i];
    }
    __syncthreads();
    for (int n = static_cast<int>(threadIdx.x); n < T::kWide * kChunks; n += kThreadsOfFloat8) {
      const int number = n / kChunks, chunk = n % kChunks;
      Pack<uint8_t, kChunk> some;
      memcpy(&some, &turned[number][chunk * kChunk / 4], kChunk);
      if (tile_begin + number < lines.size) {
        const int64_t at = tile_line + chunk * kChunk;
        write_codes(
            some, out.values + (tile_begin + number) * number_stride + at, lines.count - at);
      }
    }
  } else {
#pragma unroll
    for (int n = 0; n < kLoadsOfFloat8; ++n) {
      Pack<uint8_t, kPackOfFloat8> some;
#pragma unroll
      for (int i = 0; i < kPackOfFloat8; ++i) {
        some.at[i] = static_cast<uint8_t>(codes.words[i] >> (8 * n));
      }
      if (line + n < lines.count) {
        write_codes(some, out.values + (line + n) * line_stride + begin, lines.size - begin);
      }
    }
  }
}

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

template <bool kLinesAreRows, bool kTurned>
void launch_rounding(
    const FactoredRows& from, const float* largest, const Float8Out& out, cudaStream_t stream) {
  using T = Tile<kTurned>;
  const bool is_packed = lines_of<kLinesAreRows>(from).hold_packs();
  launch(
      out.has_e5m2 ? is_packed ? round_kernel<kLinesAreRows, kTurned, true, true>
                               : round_kernel<kLinesAreRows, kTurned, false, true>
      : is_packed ? round_kernel<kLinesAreRows, kTurned, true, false>
                   : round_kernel<kLinesAreRows, kTurned, false, false>,
      divide_up(kLinesAreRows ? from.rows : from.columns, T::kHigh) *
          divide_up(kLinesAreRows ? from.columns : from.rows, T::kWide),
      kThreadsOfFloat8,
      stream,
      from,
      largest,
      out);
}

}  // namespace

void largest_of_rows(const FactoredRows& from, float* largest, cudaStream_t stream) {
  if (from.column_stride == 1) {
    launch(
        lines_of<true>(from).hold_packs() ? largest_kernel_of_rows<true>
                                          : largest_kernel_of_rows<false>,
        divide_up(from.rows, kWarpsOfFloat8),
        kThreadsOfFloat8,
        stream,
        from,
        largest);
  } else {
    launch(
        lines_of<false>(from).hold_packs() ? largest_kernel_of_columns<true>
                                           : largest_kernel_of_columns<false>,
        divide_up(from.rows, kRowsOfBlock) * divide_up(from.columns, kColumnsOfBlock),
        kThreadsOfFloat8,
        stream,
        from,
        largest);
  }
}

void round_to_float8(
    const FactoredRows& from, const float* largest, const Float8Out& out, cudaStream_t stream) {
  const bool reads_rows = from.column_stride == 1, writes_rows = out.column_stride == 1;
  (reads_rows    ? writes_rows ? launch_rounding<true, false> : launch_rounding<true, true>
      : writes_rows ? launch_rounding<false, true>
                 : launch_rounding<false, false>)(from, largest, out, stream);
}

}  // namespace lockstep::cuda
