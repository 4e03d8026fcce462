// Kernels for unpacking quantized weights.
#include "cuda/launch.h"
#include "cuda/unpack.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreadsOfUnpack = 128;
constexpr int64_t kRunOfUnpack = 8;  // number of columns per thread, which are usually in one
                                     // block, so that the scale is loaded once

__device__ float rounded_to(Number type, float value) {
  if (type == Number::kBfloat16) {
    return __bfloat162float(__float2bfloat16(value));
  }
  return type == Number::kHalf ? __half2float(__float2half(value)) : value;
}

template <class T>
__global__ void unpack_kernel(const uint8_t* bytes, ops::UnpackPlace place, Number packed, T* out) {
  const int64_t per_row = (place.columns + kRunOfUnpack - 1) / kRunOfUnpack;
  const int64_t run = static_cast<int64_t>(blockIdx.x) * kThreadsOfUnpack + threadIdx.x;
  if (run >= place.rows * per_row) {
    return;
  }
  const int64_t i = run / per_row, begin = (run - i * per_row) * kRunOfUnpack;
  const int64_t end = begin + kRunOfUnpack < place.columns ? begin + kRunOfUnpack : place.columns;
  const int64_t row = place.first_row + i;
  const auto* floats = reinterpret_cast<const float*>(bytes);
  const uint8_t* codes = bytes + place.codes + row * place.row_bytes;
  T* to = out + i * place.columns;
  if (place.has_8_bits) {
    const float scale = floats[row] / 127.0F;
    for (int64_t j = begin; j < end; ++j) {
      narrow(static_cast<float>(static_cast<int8_t>(codes[place.first_column + j])) * scale, to[j]);
    }
    return;
  }
  const int64_t origin = place.origin(row), first = origin / place.block_size;
  const int64_t at = origin + place.first_column + begin;
  int64_t block = at / place.block_size, left = (block + 1) * place.block_size - at;
  float scale = place.scale(floats, bytes, row, first, block);
  for (int64_t j = begin; j < end; ++j, --left) {
    if (left == 0) {
      ++block;
      left = place.block_size;
      scale = place.scale(floats, bytes, row, first, block);
    }
    const float value = floats[ops::UnpackPlace::code(codes, place.first_column + j)] * scale;
    narrow(rounded_to(packed, value), to[j]);
  }
}

}  // namespace

void unpack(
    Number number,
    Number packed,
    const uint8_t* bytes,
    const ops::UnpackPlace& place,
    void* out,
    cudaStream_t stream) {
  const int64_t runs = place.rows * ((place.columns + kRunOfUnpack - 1) / kRunOfUnpack);
  with_type(number, [&](auto type) {
    using T = decltype(type);
    launch(
        unpack_kernel<T>,
        (runs + kThreadsOfUnpack - 1) / kThreadsOfUnpack,
        kThreadsOfUnpack,
        stream,
        bytes,
        place,
        packed,
        static_cast<T*>(out));
  });
}

}  // namespace lockstep::cuda
