#include <type_traits>

#include "cuda/launch.h"
#include "cuda/norms.h"
#include "cuda/pack.h"

namespace lockstep::cuda {
namespace {

constexpr int kWarpOfNorms = 32;
constexpr int kMostThreadsOfNorms = 512;

/// Numbers of 16 bytes.
template <class T>
constexpr int kPackOfNorms = static_cast<int>(16 / sizeof(T));

/// Over the threads of a block, which all call; the same for all.
__device__ inline float sum_of_block(float value) {
  __shared__ float warps[kMostThreadsOfNorms / kWarpOfNorms];
  begin_shared(warps);
  for (int step = kWarpOfNorms / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, step);
  }
  if (threadIdx.x % kWarpOfNorms == 0) {
    warps[threadIdx.x / kWarpOfNorms] = value;
  }
  __syncthreads();
  float total = 0;
  for (unsigned warp = 0; warp < blockDim.x / kWarpOfNorms; ++warp) {
    total += warps[warp];
  }
  __syncthreads();  // the next sum's memory is this one's
  return total;
}

/// What is multiplied by.
__device__ inline float factor_of(float weight, ops::RmsForm form) {
  return form == ops::RmsForm::kAroundOne ? weight + 1 : weight;
}
/// What is multiplied, as a tensor of type T would hold it where the form says so.
template <class T>
__device__ inline float multiplied(float normal, ops::RmsForm form) {
  if (form != ops::RmsForm::kRounded) {
    return normal;
  }
  T held;
  narrow(normal, held);
  return widen(held);
}

/// A block a row, which its threads keep in registers, kPacks packs each.
template <class T, int kPacks>
__global__ void __launch_bounds__(kMostThreadsOfNorms) rms_norm_kernel(
    const T* x,
    const T* residual,
    const T* weight,
    T* sum,
    T* y,
    float* inverse,
    int size,
    float eps,
    ops::RmsForm form) {
  constexpr int N = kPackOfNorms<T>;
  const int packs = size / N;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * size;
  Pack<T, N> values[kPacks];
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int pack = static_cast<int>(threadIdx.x + k * blockDim.x);
    if (pack >= packs) {
      continue;
    }
    values[k] = load<N>(x + row + pack * N);
    if (residual != nullptr) {
      const Pack<T, N> more = load<N>(residual + row + pack * N);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        narrow(widen(values[k].at[i]) + widen(more.at[i]), values[k].at[i]);
      }
      store(values[k], sum + row + pack * N);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float value = widen(values[k].at[i]);
      squares += value * value;
    }
  }
  const float scale = 1 / sqrtf(sum_of_block(squares) / static_cast<float>(size) + eps);
  if (threadIdx.x == 0) {
    inverse[blockIdx.x] = scale;
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int pack = static_cast<int>(threadIdx.x + k * blockDim.x);
    if (pack >= packs) {
      continue;
    }
    const Pack<T, N> weights = load<N>(weight + pack * N);
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float normal = multiplied<T>(widen(values[k].at[i]) * scale, form);
      narrow(normal * factor_of(widen(weights.at[i]), form), out.at[i]);
    }
    store(out, y + row + pack * N);
  }
}

/// A block takes every gridDim.x-th row, and adds up in registers what these give to the weight.
template <class T, int kPacks>
__global__ void __launch_bounds__(kMostThreadsOfNorms) rms_norm_backward_kernel(
    const T* gradient,
    const T* sum_gradient,
    const T* x,
    const T* weight,
    const float* inverse,
    T* x_gradient,
    float* runs,
    int64_t rows,
    int size,
    ops::RmsForm form) {
  constexpr int N = kPackOfNorms<T>;
  const int packs = size / N;
  float of_weight[kPacks][N] = {};
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const int64_t row = r * size;
    const float scale = inverse[r];
    Pack<T, N> values[kPacks], gradients[kPacks];
    float products = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int pack = static_cast<int>(threadIdx.x + k * blockDim.x);
      if (pack >= packs) {
        continue;
      }
      values[k] = load<N>(x + row + pack * N);
      gradients[k] = load<N>(gradient + row + pack * N);
      const Pack<T, N> weights = load<N>(weight + pack * N);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float normal = widen(values[k].at[i]) * scale, dy = widen(gradients[k].at[i]);
        products += dy * factor_of(widen(weights.at[i]), form) * normal;
        of_weight[k][i] += dy * multiplied<T>(normal, form);
      }
    }
    const float mean = sum_of_block(products) / static_cast<float>(size);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int pack = static_cast<int>(threadIdx.x + k * blockDim.x);
      if (pack >= packs) {
        continue;
      }
      const Pack<T, N> weights = load<N>(weight + pack * N);
      Pack<T, N> out, more;
      if (sum_gradient != nullptr) {
        more = load<N>(sum_gradient + row + pack * N);
      }
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float normal = widen(values[k].at[i]) * scale;
        const float weighted = widen(gradients[k].at[i]) * factor_of(widen(weights.at[i]), form);
        const float dx = (weighted - normal * mean) * scale;
        narrow(sum_gradient != nullptr ? dx + widen(more.at[i]) : dx, out.at[i]);
      }
      store(out, x_gradient + row + pack * N);
    }
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int pack = static_cast<int>(threadIdx.x + k * blockDim.x);
    if (pack >= packs) {
      continue;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      runs[static_cast<int64_t>(blockIdx.x) * size + pack * N + i] = of_weight[k][i];
    }
  }
}

constexpr int kGroupsOfRuns = 8;

/// A warp's width of columns for each block, in groups of runs: in the same order always.
template <class T>
__global__ void norm_weight_kernel(const float* runs, int64_t count, int size, T* out) {
  __shared__ float groups[kGroupsOfRuns][kWarpOfNorms];
  begin_shared(groups);
  const int lane = static_cast<int>(threadIdx.x % kWarpOfNorms);
  const int group = static_cast<int>(threadIdx.x / kWarpOfNorms);
  const int column = static_cast<int>(blockIdx.x) * kWarpOfNorms + lane;
  float sum = 0;
  for (int64_t run = group; run < count && column < size; run += kGroupsOfRuns) {
    sum += runs[run * size + column];
  }
  groups[group][lane] = sum;
  __syncthreads();
  if (group == 0 && column < size) {
    for (int other = 1; other < kGroupsOfRuns; ++other) {
      sum += groups[other][lane];
    }
    narrow(sum, out[column]);
  }
}

/// Calls function(std::integral_constant) with the fewest packs a thread that hold a row.
template <class Function>
void with_packs(int64_t packs, const Function& function) {
  const int64_t each = (packs + kMostThreadsOfNorms - 1) / kMostThreadsOfNorms;
  if (each <= 1) {
    return function(std::integral_constant<int, 1>{});
  }
  if (each == 2) {
    return function(std::integral_constant<int, 2>{});
  }
  return function(std::integral_constant<int, 4>{});
}

int threads_of_norm(int64_t packs) {
  const int64_t warps = (packs + kWarpOfNorms - 1) / kWarpOfNorms;
  return static_cast<int>(
      warps * kWarpOfNorms < kMostThreadsOfNorms ? warps * kWarpOfNorms : kMostThreadsOfNorms);
}

}  // namespace

void rms_norm(Number number, const RmsNorm& norm, cudaStream_t stream) {
  with_type(number, [&](auto type) {
    using T = decltype(type);
    const int64_t packs = norm.size / kPackOfNorms<T>;
    with_packs(packs, [&](auto each) {
      launch(
          rms_norm_kernel<T, decltype(each)::value>,
          norm.rows,
          threads_of_norm(packs),
          stream,
          static_cast<const T*>(norm.x),
          static_cast<const T*>(norm.residual),
          static_cast<const T*>(norm.weight),
          static_cast<T*>(norm.sum),
          static_cast<T*>(norm.y),
          norm.inverse,
          static_cast<int>(norm.size),
          norm.eps,
          norm.form);
    });
  });
}

void rms_norm_backward(Number number, const RmsNormBackward& norm, cudaStream_t stream) {
  const int64_t count = runs_of_norm(norm.rows);
  with_type(number, [&](auto type) {
    using T = decltype(type);
    const int64_t packs = norm.size / kPackOfNorms<T>;
    with_packs(packs, [&](auto each) {
      launch(
          rms_norm_backward_kernel<T, decltype(each)::value>,
          count,
          threads_of_norm(packs),
          stream,
          static_cast<const T*>(norm.gradient),
          static_cast<const T*>(norm.sum_gradient),
          static_cast<const T*>(norm.x),
          static_cast<const T*>(norm.weight),
          norm.inverse,
          static_cast<T*>(norm.x_gradient),
          norm.runs,
          norm.rows,
          static_cast<int>(norm.size),
          norm.form);
    });
    launch(
        norm_weight_kernel<T>,
        (norm.size + kWarpOfNorms - 1) / kWarpOfNorms,
        kGroupsOfRuns * kWarpOfNorms,
        stream,
        static_cast<const float*>(norm.runs),
        count,
        static_cast<int>(norm.size),
        static_cast<T*>(norm.weight_gradient));
  });
}

}  // namespace lockstep::cuda
