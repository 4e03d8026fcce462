// Kernel that scales values in place.
#include "cuda/launch.h"
#include "cuda/pack.h"
#include "cuda/scale.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreadsOfScale = 256;
constexpr int64_t kMostBlocksOfScale = 2048;  // beyond this number, each thread processes several
                                              // values

template <int N, class T>
__device__ inline void scale_some(T* values, float by) {
  Pack<T, N> pack = load<N>(values);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    narrow(widen(pack.at[i]) * by, pack.at[i]);
  }
  store(pack, values);
}

/// Each thread processes N values at a time, and then single remaining values.
template <class T, int N>
__global__ void __launch_bounds__(kThreadsOfScale)
    scale_kernel(T* values, int64_t count, const float* factor) {
  const float by = *factor;
  if (by == 1) {
    return;
  }
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreadsOfScale + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreadsOfScale, packs = count / N;
  for (int64_t i = first; i < packs; i += stride) {
    scale_some<N>(values + i * N, by);
  }
  for (int64_t i = packs * N + first; i < count; i += stride) {
    scale_some<1>(values + i, by);
  }
}

}  // namespace

void scale(Number number, void* values, int64_t count, const float* factor, cudaStream_t stream) {
  with_type(number, [&](auto type) {
    using T = decltype(type);
    constexpr int kPack = static_cast<int>(16 / sizeof(T));
    const bool is_packed = begins_pack(values, 16);
    const int64_t threads = is_packed ? count / kPack + 1 : count;
    const int64_t needed = (threads + kThreadsOfScale - 1) / kThreadsOfScale;
    launch(
        is_packed ? scale_kernel<T, kPack> : scale_kernel<T, 1>,
        needed < kMostBlocksOfScale ? needed : kMostBlocksOfScale,
        kThreadsOfScale,
        stream,
        static_cast<T*>(values),
        count,
        factor);
  });
}

}  // namespace lockstep::cuda
