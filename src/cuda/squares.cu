#include "cuda/launch.h"
#include "cuda/squares.h"
#include "ops/square_sums.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreadsOfSquares = 256;

/// A block a sum. A thread adds a few squares in float32, so that doubles, of which small GPUs make
/// few, are rare.
template <class T>
__global__ void squares_kernel(const T* from, int64_t count, double share, double* sums) {
  constexpr int kFew = 8;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreadsOfSquares;
  double sum = 0;
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreadsOfSquares + threadIdx.x;
  while (i < count) {
    float few = 0;
    for (int n = 0; n < kFew && i < count; ++n, i += stride) {
      const float x = widen(from[i]);
      few += x * x;
    }
    sum += few;
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
    launch(
        squares_kernel<T>,
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
