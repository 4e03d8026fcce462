// Kernels of row-wise softmax statistics and gradients.
#include "cuda/launch.h"
#include "cuda/pack.h"
#include "cuda/softmax_rows.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarp = 32;

/// Returns exp(x), computed by the GPU's exponential instruction; 0 below 2^-126. The relative
/// error is 2^-22 plus 2^-24 of x.
__device__ float exponential(float x) {
  constexpr float kLogOfE = 1.4426950408889634F;
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * kLogOfE));
  return result;
#else
  return exp2f(x * kLogOfE);
#endif
}

/// A running maximum, and the sum of exponentials relative to it (Milakov and Gimelshein, "Online
/// normalizer calculation for softmax", 2018).
struct Partial {
  float maximum, total;  // not initialized, because initial values would not be applied in shared
                         // memory

  /// NaN propagates through the total.
  template <int N>
  __device__ void add(const float (&values)[N]) {
    float most = maximum;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      most = fmaxf(most, values[i]);
    }
    const float base = most == -INFINITY ? 0 : most;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      sum += exponential(values[i] - base);
    }
    total = total * exponential(maximum - base) + sum;
    maximum = most;
  }
  __device__ void add(const Partial& other) {
    const float most = fmaxf(maximum, other.maximum), base = most == -INFINITY ? 0 : most;
    total = total * exponential(maximum - base) + other.total * exponential(other.maximum - base);
    maximum = most;
  }
};

/// Calls visit(first, pack) for the values of a row that a thread processes: first packs of N
/// values, several of which are loaded before any is used, and then single values.
template <int N, class T, class Visit>
__device__ void visit_row(const T* values, int64_t size, const Visit& visit) {
  constexpr int kLoads = N == 1 ? 8 : 4;
  const auto first = static_cast<int>(threadIdx.x);
  const int packs = static_cast<int>(size / N);
  int pack = first;
  for (; pack + (kLoads - 1) * kThreads < packs; pack += kLoads * kThreads) {
    Pack<T, N> several[kLoads];
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      several[n] = load<N>(values + int64_t{pack + n * kThreads} * N);
    }
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      visit(int64_t{pack + n * kThreads} * N, several[n]);
    }
  }
  for (; pack < packs; pack += kThreads) {
    visit(int64_t{pack} * N, load<N>(values + int64_t{pack} * N));
  }
  if (const int64_t last = int64_t{packs} * N + first; last < size) {
    visit(last, load<1>(values + last));
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) statistics_kernel(
    const T* logits,
    const int64_t* targets,
    int64_t size,
    int64_t stride,
    float* maximum,
    float* total,
    float* target_logit) {
  const int64_t row = blockIdx.x;
  const T* values = logits + row * stride;
  Partial mine{-INFINITY, 0};
  visit_row<N>(values, size, [&]<int kCount>(int64_t, const Pack<T, kCount>& pack) {
    float wide[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      wide[i] = widen(pack.at[i]);
    }
    mine.add(wide);
  });
  for (int step = kWarp / 2; step > 0; step /= 2) {
    Partial other;
    other.maximum = __shfl_xor_sync(0xffffffffU, mine.maximum, step);
    other.total = __shfl_xor_sync(0xffffffffU, mine.total, step);
    mine.add(other);
  }
  __shared__ Partial warps[kThreads / kWarp];
  begin_shared(warps);
  if (threadIdx.x % kWarp == 0) {
    warps[threadIdx.x / kWarp] = mine;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kThreads / kWarp; ++warp) {
      mine.add(warps[warp]);
    }
    maximum[row] = mine.maximum;
    total[row] = mine.total;
    const int64_t target = targets[row];
    target_logit[row] = target >= 0 && target < size ? widen(values[target]) : 0;
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) gradient_kernel(
    T* logits,
    const int64_t* targets,
    int64_t size,
    int64_t stride,
    const float* log_sum,
    const float* softmax_factor,
    const float* target_factor,
    float inverse_cap) {
  const int64_t row = blockIdx.x;
  T* values = logits + row * stride;
  const int64_t target = targets[row];
  const float sum = log_sum[row], of_softmax = softmax_factor[row], of_target = target_factor[row];
  visit_row<N>(values, size, [&]<int kCount>(int64_t first, Pack<T, kCount> pack) {
    const auto own =
        static_cast<int>(target >= first && target < first + kCount ? target - first : -1);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float logit = widen(pack.at[i]), t = logit * inverse_cap;
      const float p = of_softmax == 0 ? 0 : exponential(logit - sum) * of_softmax;
      narrow((p - (i == own ? of_target : 0)) * (1 - t * t), pack.at[i]);
    }
    store(pack, values + first);
  });
}

template <int N, class T>
bool rows_begin_packs(const T* logits, int64_t stride) {
  return begins_pack(logits, sizeof(Pack<T, N>)) && stride % N == 0;
}

}  // namespace

void row_statistics(
    Number number,
    const void* logits,
    const int64_t* targets,
    int64_t rows,
    int64_t size,
    int64_t stride,
    float* maximum,
    float* total,
    float* target_logit,
    cudaStream_t stream) {
  with_type(number, [&](auto type) {
    using T = decltype(type);
    constexpr int kPack = static_cast<int>(16 / sizeof(T));
    launch(
        rows_begin_packs<kPack>(static_cast<const T*>(logits), stride) ? statistics_kernel<T, kPack>
                                                                       : statistics_kernel<T, 1>,
        rows,
        kThreads,
        stream,
        static_cast<const T*>(logits),
        targets,
        size,
        stride,
        maximum,
        total,
        target_logit);
  });
}

void logits_become_gradient(
    Number number,
    void* logits,
    const int64_t* targets,
    int64_t rows,
    int64_t size,
    int64_t stride,
    const float* log_sum,
    const float* softmax_factor,
    const float* target_factor,
    float inverse_cap,
    cudaStream_t stream) {
  with_type(number, [&](auto type) {
    using T = decltype(type);
    constexpr int kPack = static_cast<int>(16 / sizeof(T));
    launch(
        rows_begin_packs<kPack>(static_cast<const T*>(logits), stride) ? gradient_kernel<T, kPack>
                                                                       : gradient_kernel<T, 1>,
        rows,
        kThreads,
        stream,
        static_cast<T*>(logits),
        targets,
        size,
        stride,
        log_sum,
        softmax_factor,
        target_factor,
        inverse_cap);
  });
}

}  // namespace lockstep::cuda
