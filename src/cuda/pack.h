// Packs: several values that one instruction loads or stores, for memory-bound kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cuda_runtime.h>

namespace lockstep::cuda {

template <class T, int N>
struct alignas(N * sizeof(T)) Pack {
  T at[N];
};

template <int N, class T>
__device__ inline Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
/// Stores a pack with one instruction. The explicit form is needed because compilers may split the
/// store of a pack that was assembled or copied.
template <int N, class T>
__device__ inline void store(const Pack<T, N>& pack, T* to) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(pack) == sizeof(uint4) || sizeof(pack) == sizeof(uint2)) {
    std::conditional_t<sizeof(pack) == sizeof(uint4), uint4, uint2> bits;
    memcpy(&bits, &pack, sizeof(bits));
    __stwb(reinterpret_cast<decltype(bits)*>(to), bits);
    return;
  }
#endif
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// Load and store the first `count` of N values without alignment. The other values are 0 and are
/// not stored.
template <int N, class T>
__device__ inline Pack<T, N> load_some(const T* from, int64_t count) {
  Pack<T, N> pack = {};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) {
      pack.at[i] = from[i];
    }
  }
  return pack;
}
template <int N, class T>
__device__ inline void store_some(const Pack<T, N>& pack, T* to, int64_t count) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) {
      to[i] = pack.at[i];
    }
  }
}

/// Returns true if the address is aligned for packs of `bytes`, or null.
inline __host__ __device__ bool begins_pack(const void* memory, size_t bytes) {
  return reinterpret_cast<uintptr_t>(memory) % bytes == 0;
}

}  // namespace lockstep::cuda
