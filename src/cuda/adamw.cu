// AdamW kernel over flat buffers.
#include "cuda/adamw.h"
#include "cuda/launch.h"
#include "cuda/number.h"
#include "cuda/pack.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 4096;  // beyond this number, each thread processes several elements
constexpr int kPackOfAdamW = 4;        // 16 bytes of float32

/// Factors of a step, in the order of ops::adamw_numbers (ops/cpu/adamw_kernel.h).
struct Factors {
  float scale, keep, beta1, new1, beta2, new2, rate, root, epsilon;
};

template <int N, class Gradient>
__device__ inline void update(
    const Gradient* gradient, const AdamWPointers& p, const Factors& f, int64_t begin) {
  const Pack<Gradient, N> g = load<N>(gradient + begin);
  Pack<float, N> m = load<N>(static_cast<const float*>(p.exp_avg) + begin);
  Pack<float, N> v = load<N>(static_cast<const float*>(p.exp_avg_sq) + begin);
  Pack<float, N> w = load<N>(static_cast<const float*>(p.weight) + begin);
  Pack<__nv_bfloat16, N> low;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float scaled = widen(g.at[i]) * f.scale;
    m.at[i] = f.beta1 * m.at[i] + f.new1 * scaled;
    v.at[i] = f.beta2 * v.at[i] + f.new2 * (scaled * scaled);
    w.at[i] = f.keep * w.at[i] - f.rate * (m.at[i] / (sqrtf(v.at[i]) * f.root + f.epsilon));
    low.at[i] = __float2bfloat16(w.at[i]);
  }
  store(m, p.exp_avg + begin);
  store(v, p.exp_avg_sq + begin);
  store(w, p.weight + begin);
  if (p.low != nullptr) {
    store(low, static_cast<__nv_bfloat16*>(p.low) + begin);
  }
}

/// Each thread processes N elements at a time, and then single remaining elements.
template <class Gradient, int N>
__global__ void adamw_kernel(
    const Gradient* gradient, AdamWPointers p, const float* numbers, int64_t count) {
  const Factors factors{
      numbers[0],
      numbers[1],
      numbers[2],
      numbers[3],
      numbers[4],
      numbers[5],
      numbers[6],
      numbers[7],
      numbers[8]};
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads, packs = count / N;
  for (int64_t i = first; i < packs; i += stride) {
    update<N>(gradient, p, factors, i * N);
  }
  for (int64_t i = packs * N + first; i < count; i += stride) {
    update<1>(gradient, p, factors, i);
  }
}

template <class Gradient>
void launch_adamw(
    const Gradient* gradient,
    const AdamWPointers& p,
    const float* numbers,
    int64_t count,
    cudaStream_t stream) {
  constexpr size_t kWide = kPackOfAdamW * sizeof(float), kNarrow = kWide / 2;
  const bool is_packed = begins_pack(gradient, kPackOfAdamW * sizeof(Gradient)) &&
                         begins_pack(p.weight, kWide) && begins_pack(p.exp_avg, kWide) &&
                         begins_pack(p.exp_avg_sq, kWide) && begins_pack(p.low, kNarrow);
  const int64_t threads = is_packed ? count / kPackOfAdamW + 1 : count;
  const int64_t needed = (threads + kThreads - 1) / kThreads;
  launch(
      is_packed ? adamw_kernel<Gradient, kPackOfAdamW> : adamw_kernel<Gradient, 1>,
      needed < kMostBlocks ? needed : kMostBlocks,
      kThreads,
      stream,
      gradient,
      p,
      numbers,
      count);
}

}  // namespace

void adamw(
    const AdamWPointers& pointers, const float* numbers, int64_t count, cudaStream_t stream) {
  if (pointers.gradient != nullptr) {
    launch_adamw(pointers.gradient, pointers, numbers, count, stream);
  } else {
    launch_adamw(
        static_cast<const __nv_bfloat16*>(pointers.low_gradient), pointers, numbers, count, stream);
  }
}

}  // namespace lockstep::cuda
