// SwiGLU kernels.
#include "cuda/launch.h"
#include "cuda/pack.h"
#include "cuda/swiglu.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreadsOfSwiglu = 256;
constexpr int64_t kMostBlocksOfSwiglu = 8192;  // beyond this number, each thread processes several
                                               // values

__device__ float sigmoid(float x) {
  return 1 / (1 + expf(-x));
}

template <int N, class T>
__device__ inline void gate_some(const T* gate, const T* up, T* out, int64_t begin) {
  const Pack<T, N> gates = load<N>(gate + begin), ups = load<N>(up + begin);
  Pack<T, N> result;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float g = widen(gates.at[i]);
    narrow(g * sigmoid(g) * widen(ups.at[i]), result.at[i]);
  }
  store(result, out + begin);
}

/// Each thread processes N values at a time, and then single remaining values.
template <class T, int N>
__global__ void swiglu_kernel(const T* gate, const T* up, T* out, int64_t count) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreadsOfSwiglu + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreadsOfSwiglu, packs = count / N;
  for (int64_t i = first; i < packs; i += stride) {
    gate_some<N>(gate, up, out, i * N);
  }
  for (int64_t i = packs * N + first; i < count; i += stride) {
    gate_some<1>(gate, up, out, i);
  }
}

/// Gradients of gate and up.
template <class T>
struct SwigluGradients {
  T *gate, *up;
};

template <int N, class T>
__device__ inline void ungate_some(
    const T* gate, const T* up, const T* out, const SwigluGradients<T>& gradients, int64_t begin) {
  const Pack<T, N> gates = load<N>(gate + begin), ups = load<N>(up + begin),
                   outs = load<N>(out + begin);
  Pack<T, N> of_gates, of_ups;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float g = widen(gates.at[i]), dy = widen(outs.at[i]), s = sigmoid(g);
    narrow(dy * g * s, of_ups.at[i]);
    narrow(dy * widen(ups.at[i]) * s * (1 + g * (1 - s)), of_gates.at[i]);
  }
  store(of_ups, gradients.up + begin);
  store(of_gates, gradients.gate + begin);
}

template <class T, int N>
__global__ void swiglu_backward_kernel(
    const T* gate,
    const T* up,
    const T* out_gradient,
    T* gate_gradient,
    T* up_gradient,
    int64_t count) {
  const SwigluGradients<T> gradients{gate_gradient, up_gradient};
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreadsOfSwiglu + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreadsOfSwiglu, packs = count / N;
  for (int64_t i = first; i < packs; i += stride) {
    ungate_some<N>(gate, up, out_gradient, gradients, i * N);
  }
  for (int64_t i = packs * N + first; i < count; i += stride) {
    ungate_some<1>(gate, up, out_gradient, gradients, i);
  }
}

/// Number of values in 16 bytes.
template <class T>
constexpr int kPackOfSwiglu = static_cast<int>(16 / sizeof(T));

int64_t blocks_of_swiglu(int64_t threads) {
  const int64_t needed = (threads + kThreadsOfSwiglu - 1) / kThreadsOfSwiglu;
  return needed < kMostBlocksOfSwiglu ? needed : kMostBlocksOfSwiglu;
}

}  // namespace

void swiglu(
    Number number,
    const void* gate,
    const void* up,
    void* out,
    int64_t count,
    cudaStream_t stream) {
  const bool is_packed = begins_pack(gate, 16) && begins_pack(up, 16) && begins_pack(out, 16);
  with_type(number, [&](auto type) {
    using T = decltype(type);
    launch(
        is_packed ? swiglu_kernel<T, kPackOfSwiglu<T>> : swiglu_kernel<T, 1>,
        blocks_of_swiglu(is_packed ? count / kPackOfSwiglu<T> + 1 : count),
        kThreadsOfSwiglu,
        stream,
        static_cast<const T*>(gate),
        static_cast<const T*>(up),
        static_cast<T*>(out),
        count);
  });
}

void swiglu_backward(
    Number number,
    const void* gate,
    const void* up,
    const void* out_gradient,
    void* gate_gradient,
    void* up_gradient,
    int64_t count,
    cudaStream_t stream) {
  const bool is_packed = begins_pack(gate, 16) && begins_pack(up, 16) &&
                         begins_pack(out_gradient, 16) && begins_pack(gate_gradient, 16) &&
                         begins_pack(up_gradient, 16);
  with_type(number, [&](auto type) {
    using T = decltype(type);
    launch(
        is_packed ? swiglu_backward_kernel<T, kPackOfSwiglu<T>> : swiglu_backward_kernel<T, 1>,
        blocks_of_swiglu(is_packed ? count / kPackOfSwiglu<T> + 1 : count),
        kThreadsOfSwiglu,
        stream,
        static_cast<const T*>(gate),
        static_cast<const T*>(up),
        static_cast<const T*>(out_gradient),
        static_cast<T*>(gate_gradient),
        static_cast<T*>(up_gradient),
        count);
  });
}

}  // namespace lockstep::cuda
