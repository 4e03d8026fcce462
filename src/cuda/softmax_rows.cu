#include "cuda/launch.h"
#include "cuda/softmax_rows.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarp = 32;

/// A maximum, and a sum of exponentials relative to it (Milakov and Gimelshein, "Online normalizer
/// calculation for softmax", 2018).
struct Partial {
  float maximum, total;  // no initial values: shared memory would ignore them

  __device__ void add(float value) {
    if (value > maximum) {
      total = total * expf(maximum - value) + 1;
      maximum = value;
    } else {
      total += value == -INFINITY ? 0 : expf(value - maximum);  // a NaN stays
    }
  }
  __device__ void add(const Partial& other) {
    if (other.maximum == -INFINITY && other.total == 0) {
      return;
    }
    const float most = fmaxf(maximum, other.maximum);
    const float own = maximum == -INFINITY ? 0 : total * expf(maximum - most);
    total = own + other.total * (other.maximum == -INFINITY ? 1 : expf(other.maximum - most));
    maximum = most;
  }
};

template <class T>
__global__ void statistics_kernel(
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
  for (int64_t i = threadIdx.x; i < size; i += kThreads) {
    mine.add(widen(values[i]));
  }
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

template <class T>
__global__ void gradient_kernel(
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
  for (int64_t i = threadIdx.x; i < size; i += kThreads) {
    const float logit = widen(values[i]), t = logit * inverse_cap;
    const float p = of_softmax == 0 ? 0 : expf(logit - sum) * of_softmax;
    narrow((p - (i == target ? of_target : 0)) * (1 - t * t), values[i]);
  }
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
    launch(
        statistics_kernel<T>,
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
    launch(
        gradient_kernel<T>,
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
