// Several numbers that one instruction moves: kernels that memory bounds read and write so.
#pragma once

#include <cstddef>
#include <cstdint>

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
template <int N, class T>
__device__ inline void store(const Pack<T, N>& pack, T* to) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// Whether packs of `bytes` may begin there; null: nothing begins.
inline bool begins_pack(const void* memory, size_t bytes) {
  return reinterpret_cast<uintptr_t>(memory) % bytes == 0;
}

}  // namespace lockstep::cuda
