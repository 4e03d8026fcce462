#include "cuda/launch.h"
#include "cuda/rope.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreadsOfRope = 256;
constexpr int64_t kMostBlocksOfRope = 8192;  // each thread takes further pairs then

/// A thread a pair, or a number behind the pairs.
template <class T>
__global__ void rotate_kernel(
    const T* from,
    T* to,
    const float* cos,
    const float* sin,
    float sign,
    ops::RotatedHeads at,
    int64_t count) {
  const int64_t of_head = at.size - at.half;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreadsOfRope;
  for (int64_t n = static_cast<int64_t>(blockIdx.x) * kThreadsOfRope + threadIdx.x; n < count;
       n += stride) {
    const int64_t i = n % of_head, head = n / of_head % at.heads, token = n / of_head / at.heads;
    const int64_t row = token / at.length, position = token % at.length;
    const T* in =
        from + row * at.from_stride[0] + position * at.from_stride[1] + head * at.from_stride[2];
    T* out = to + row * at.to_stride[0] + position * at.to_stride[1] + head * at.to_stride[2];
    if (i >= at.half) {
      out[i + at.half] = in[i + at.half];
      continue;
    }
    const int64_t angle = (at.angles_by_row ? token : position) * at.half + i;
    const float a = widen(in[i]), b = widen(in[i + at.half]);
    const float c = cos[angle], s = sin[angle] * sign;
    narrow(a * c - b * s, out[i]);
    narrow(b * c + a * s, out[i + at.half]);
  }
}

}  // namespace

void rotate(
    Number number,
    const void* from,
    void* to,
    const float* cos,
    const float* sin,
    float sign,
    const ops::RotatedHeads& heads,
    cudaStream_t stream) {
  const int64_t count = heads.rows * heads.length * heads.heads * (heads.size - heads.half);
  const int64_t needed = (count + kThreadsOfRope - 1) / kThreadsOfRope;
  with_type(number, [&](auto type) {
    using T = decltype(type);
    launch(
        rotate_kernel<T>,
        needed < kMostBlocksOfRope ? needed : kMostBlocksOfRope,
        kThreadsOfRope,
        stream,
        static_cast<const T*>(from),
        static_cast<T*>(to),
        cos,
        sin,
        sign,
        heads,
        count);
  });
}

}  // namespace lockstep::cuda
