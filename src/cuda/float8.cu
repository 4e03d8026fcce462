#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "cuda/float8.h"
#include "cuda/launch.h"

namespace lockstep::cuda {
namespace {

constexpr int kTile = 32, kLines = 8, kThreadsOfFloat8 = kTile * kLines;

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

__device__ float number_at(const FactoredRows& in, int64_t row, int64_t column) {
  const auto* from = static_cast<const __nv_bfloat16*>(in.from);
  const float x = __bfloat162float(from[row * in.row_stride + column * in.column_stride]);
  return in.factors == nullptr ? x : x * in.factors[column * in.factor_of_column];
}

/// Magnitudes are compared by their bits, of which NaN's are the highest. Where rows are dense a
/// warp has one; else neighbouring threads have neighbouring rows.
__global__ void largest_kernel(FactoredRows in, float* largest) {
  __shared__ uint32_t lines[kLines][kTile];
  begin_shared(lines);
  const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const bool is_dense = in.column_stride == 1;
  const int64_t row = is_dense ? static_cast<int64_t>(blockIdx.x) * kLines + y
                               : static_cast<int64_t>(blockIdx.x) * kTile + x;
  uint32_t most = 0;
  if (row < in.rows) {
    for (int64_t column = is_dense ? x : y; column < in.columns;
         column += is_dense ? kTile : kLines) {
      const uint32_t bits = bits_of(number_at(in, row, column)) & 0x7FFFFFFFU;
      most = bits > most ? bits : most;
    }
  }
  lines[y][x] = most;
  __syncthreads();
  if (row < in.rows && (is_dense ? x : y) == 0) {
    for (int i = 1; i < (is_dense ? kTile : kLines); ++i) {
      const uint32_t other = is_dense ? lines[y][i] : lines[i][x];
      most = other > most ? other : most;
    }
    largest[row] = float_of(most);
  }
}

/// As ops/float8.cpp finds it.
__device__ uint32_t scale_bits(float largest, bool has_e5m2) {
  constexpr int64_t kExponent = int64_t{1} << 23;
  int64_t bits = static_cast<int64_t>(bits_of(largest)) + kExponent / 4 - 1;
  bits -= (has_e5m2 ? 15 : 8) * kExponent;
  bits = bits < kExponent ? kExponent : bits > 253 * kExponent ? 253 * kExponent : bits;
  return static_cast<uint32_t>(bits) & 0x7F800000U;
}

/// A tile a block, over which rows become columns where they lie otherwise in the result.
__global__ void round_kernel(FactoredRows in, const float* largest, Float8Out out) {
  __shared__ float tile[kTile][kTile + 1];
  begin_shared(tile);
  const int64_t tiles = (in.columns + kTile - 1) / kTile;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) / tiles * kTile;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) % tiles * kTile;
  const int x = threadIdx.x % kTile;
  for (int y = static_cast<int>(threadIdx.x) / kTile; y < kTile; y += kLines) {
    const int r = in.column_stride == 1 ? y : x, c = in.column_stride == 1 ? x : y;
    if (first_row + r < in.rows && first_column + c < in.columns) {
      tile[r][c] = number_at(in, first_row + r, first_column + c);
    }
  }
  __syncthreads();
  for (int y = static_cast<int>(threadIdx.x) / kTile; y < kTile; y += kLines) {
    const int r = out.column_stride == 1 ? y : x, c = out.column_stride == 1 ? x : y;
    const int64_t row = first_row + r, column = first_column + c;
    if (row >= in.rows || column >= in.columns) {
      continue;
    }
    const uint32_t scale = scale_bits(largest[out.is_by_row ? row : 0], out.has_e5m2);
    const float reciprocal = float_of(254U * (1U << 23) - scale);
    out.values[row * out.row_stride + column * out.column_stride] = __nv_cvt_float_to_fp8(
        tile[r][c] * reciprocal, __NV_NOSAT, out.has_e5m2 ? __NV_E5M2 : __NV_E4M3);
    if (column == 0 && (out.is_by_row || row == 0)) {
      out.scales[row] = float_of(scale);
    }
  }
}

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

void largest_of_rows(const FactoredRows& from, float* largest, cudaStream_t stream) {
  launch(
      largest_kernel,
      divide_up(from.rows, from.column_stride == 1 ? kLines : kTile),
      kThreadsOfFloat8,
      stream,
      from,
      largest);
}

void round_to_float8(
    const FactoredRows& from, const float* largest, const Float8Out& out, cudaStream_t stream) {
  launch(
      round_kernel,
      divide_up(from.rows, kTile) * divide_up(from.columns, kTile),
      kThreadsOfFloat8,
      stream,
      from,
      largest,
      out);
}

}  // namespace lockstep::cuda
