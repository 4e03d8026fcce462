// Kernel that sums squares for gradient norms.
#include "cuda/launch.h"
#include "cuda/pack.h"
#include "cuda/squares.h"
#include "ops/square_sums.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreadsOfSquares = 256;

/// Uses one block per sum. Each thread loads several packs of N values before it uses any of them.
/// The squares of a pack are added in float32, because float64 is slow on small GPUs.
template <class T, int N>
__global__ void __launch_bounds__(kThreadsOfSquares)
    squares_kernel(const T* from, int64_t count, double share, double* sums) {
  constexpr int kLoads = 8;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreadsOfSquares + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreadsOfSquares, packs = count / N;
  double sum = 0;
  const auto add = [&](const Pack<T, N>& pack) {
    float few = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float x = widen(pack.at[i]);
      few += x * x;
    }
    sum += few;
  };
  int64_t pack = first;
  for (; pack + (kLoads - 1) * stride < packs; pack += kLoads * stride) {
    Pack<T, N> several[kLoads];
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      several[n] = load<N>(from + (pack + n * stride) * N);
    }
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      add(several[n]);
    }
  }
  for (; pack < packs; pack += stride) {
    add(load<N>(from + pack * N));
  }
  if (const int64_t last = packs * N + first; last < count) {  // values after the last pack
    const float x = widen(from[last]);
    sum += x * x;
  }
  __shared__ double threads[kThreadsOfSquares];
  begin_shared(threads);
  threads[threadIdx.x] = sum;
  for (unsigned half = kThreadsOfSquares / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      threads[threadIdx.x] += threads[threadIdx.x + half];
    }
  }
  if (threadIdx.x == 0) {
    sums[blockIdx.x] += share * threads[0];
  }
}

}  // namespace

void add_squares(
    Number number,
    const void* from,
    int64_t count,
    double share,
    double* sums,
    cudaStream_t stream) {
  with_type(number, [&](auto type) {
    using T = decltype(type);
    constexpr int kPack = static_cast<int>(16 / sizeof(T));
    launch(
        begins_pack(from, 16) ? squares_kernel<T, kPack> : squares_kernel<T, 1>,
        ops::kSquareSums,
        kThreadsOfSquares,
        stream,
        static_cast<const T*>(from),
        count,
        share,
        sums);
  });
}

}  // namespace lockstep::cuda
