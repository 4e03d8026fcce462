// Counter-based dropout kernel.
#include "base/counter_random.h"
#include "cuda/dropout.h"
#include "cuda/launch.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreadsOfDropout = 256;
constexpr int64_t kMostBlocksOfDropout =
    8192;  // beyond this number, each thread processes several elements

/// Returns the global index of element `index` of a row.
__device__ uint64_t element_of(uint64_t index, const ops::DropoutPlace& place) {
  uint64_t element = 0, stride = 1;
#pragma unroll  // constant indices, so that the arrays stay in registers
  for (int dim = ops::DropoutPlace::kMostDims - 1; dim >= 0; --dim) {
    if (dim >= place.dims) {
      continue;
    }
    const auto size = static_cast<uint64_t>(place.size[dim]);
    element += (index % size + static_cast<uint64_t>(place.begin[dim])) * stride;
    index /= size;
    stride *= static_cast<uint64_t>(place.whole[dim]);
  }
  return element;
}

template <class T>
__global__ void dropout_kernel(
    const T* from,
    T* to,
    int64_t count,
    const int64_t* keys,
    int64_t per_row,
    ops::DropoutPlace place,
    uint32_t threshold,
    float scale) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreadsOfDropout;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreadsOfDropout + threadIdx.x; i < count;
       i += stride) {
    const uint64_t element = element_of(static_cast<uint64_t>(i % per_row), place);
    const uint64_t word = random_bits(static_cast<uint64_t>(keys[i / per_row]), element / 2);
    const auto drawn = static_cast<uint32_t>(element % 2 == 0 ? word : word >> 32);
    narrow(drawn >= threshold ? widen(from[i]) * scale : 0, to[i]);
  }
}

}  // namespace

void dropout(
    Number number,
    const void* from,
    void* to,
    int64_t count,
    const int64_t* keys,
    int64_t per_row,
    const ops::DropoutPlace& place,
    uint32_t threshold,
    float scale,
    cudaStream_t stream) {
  const int64_t needed = (count + kThreadsOfDropout - 1) / kThreadsOfDropout;
  with_type(number, [&](auto type) {
    using T = decltype(type);
    launch(
        dropout_kernel<T>,
        needed < kMostBlocksOfDropout ? needed : kMostBlocksOfDropout,
        kThreadsOfDropout,
        stream,
        static_cast<const T*>(from),
        static_cast<T*>(to),
        count,
        keys,
        per_row,
        place,
        threshold,
        scale);
  });
}

}  // namespace lockstep::cuda
