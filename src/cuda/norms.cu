// Kernels of RMS norms and layer norms.
#include <type_traits>

#include "cuda/launch.h"
#include "cuda/norms.h"
#include "cuda/pack.h"

namespace lockstep::cuda {
namespace {

constexpr int kWarpOfNorms = 32;
constexpr int kMostThreadsOfNorms = 512;

/// Number of values in 16 bytes.
template <class T>
constexpr int kPackOfNorms = static_cast<int>(16 / sizeof(T));

/// Several sums that are reduced together.
template <int kCount>
struct Sums {
  float at[kCount];
};

/// Reduces over the threads of a block. Must be called by all threads, which all get the result.
template <int kCount>
__device__ inline Sums<kCount> sums_of_block(Sums<kCount> sums) {
  __shared__ Sums<kCount> warps[kMostThreadsOfNorms / kWarpOfNorms];
  begin_shared(warps);
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    for (int step = kWarpOfNorms / 2; step > 0; step /= 2) {
      sums.at[n] += __shfl_xor_sync(0xffffffffU, sums.at[n], step);
    }
  }
  if (threadIdx.x % kWarpOfNorms == 0) {
    warps[threadIdx.x / kWarpOfNorms] = sums;
  }
  __syncthreads();
  Sums<kCount> total{};
  for (unsigned warp = 0; warp < blockDim.x / kWarpOfNorms; ++warp) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      total.at[n] += warps[warp].at[n];
    }
  }
  __syncthreads();  // because the next reduction reuses this memory
  return total;
}
__device__ inline float sum_of_block(float value) {
  return sums_of_block(Sums<1>{{value}}).at[0];
}

/// Returns the factor by which the normalized value is multiplied.
__device__ inline float factor_of(float weight, ops::RmsForm form) {
  return form == ops::RmsForm::kAroundOne ? weight + 1 : weight;
}
/// Returns the normalized value, rounded to type T if the form requires it.
template <class T>
__device__ inline float multiplied(float normal, ops::RmsForm form) {
  if (form != ops::RmsForm::kRounded) {
    return normal;
  }
  T held;
  narrow(normal, held);
  return widen(held);
}

/// Uses one block per row. Its threads store the row in registers, with kPacks packs each.
/// kCentered: a layer norm.
template <class T, int kPacks, bool kCentered>
__global__ void __launch_bounds__(kMostThreadsOfNorms) norm_kernel(
    const T* x,
    const T* residual,
    const T* weight,
    const T* bias,
    T* sum,
    T* y,
    float* mean,
    float* inverse,
    int size,
    float eps,
    ops::RmsForm form) {
  constexpr int N = kPackOfNorms<T>;
  const int packs = size / N;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * size;
  const auto pack_of = [&](int k) { return static_cast<int>(threadIdx.x + k * blockDim.x); };
  Pack<T, N> values[kPacks];
  float squares = 0, total = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int pack = pack_of(k);
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
      total += value;
    }
  }
  float middle = 0;
  if constexpr (kCentered) {
    middle = sum_of_block(total) / static_cast<float>(size);
    squares = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < N && pack_of(k) < packs; ++i) {
        const float distance = widen(values[k].at[i]) - middle;
        squares += distance * distance;
      }
    }
  }
  const float scale = 1 / sqrtf(sum_of_block(squares) / static_cast<float>(size) + eps);
  if (threadIdx.x == 0) {
    inverse[blockIdx.x] = scale;
    if constexpr (kCentered) {
      mean[blockIdx.x] = middle;
    }
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int pack = pack_of(k);
    if (pack >= packs) {
      continue;
    }
    const Pack<T, N> weights = load<N>(weight + pack * N);
    Pack<T, N> shifts, out;
    if constexpr (kCentered) {
      shifts = load<N>(bias + pack * N);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float w = widen(weights.at[i]);
      if constexpr (kCentered) {
        narrow((widen(values[k].at[i]) - middle) * scale * w + widen(shifts.at[i]), out.at[i]);
      } else {
        const float normal = multiplied<T>(widen(values[k].at[i]) * scale, form);
        narrow(normal * factor_of(w, form), out.at[i]);
      }
    }
    store(out, y + row + pack * N);
  }
}

/// Each block processes every gridDim.x-th row and accumulates the gradients of weight and bias in
/// registers.
template <class T, int kPacks, bool kCentered>
__global__ void __launch_bounds__(kMostThreadsOfNorms) norm_backward_kernel(
    const T* gradient,
    const T* sum_gradient,
    const T* x,
    const T* weight,
    const float* mean,
    const float* inverse,
    T* x_gradient,
    float* runs,
    int64_t rows,
    int size,
    ops::RmsForm form) {
  constexpr int N = kPackOfNorms<T>, kParameters = kCentered ? 2 : 1;
  constexpr bool kIsEarly =
      kPacks < 4;  // loads the whole row before the reduction if there are enough registers
  const int packs = size / N;
  const auto pack_of = [&](int k) { return static_cast<int>(threadIdx.x + k * blockDim.x); };
  const auto factor = [&](T w) { return kCentered ? widen(w) : factor_of(widen(w), form); };
  float of_parameters[kParameters][kPacks][N] = {};
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const int64_t row = r * size;
    const float scale = inverse[r], middle = kCentered ? mean[r] : 0;
    Pack<T, N> values[kPacks], gradients[kPacks], more[kPacks];
    Sums<kParameters> sums{};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int pack = pack_of(k);
      if (pack >= packs) {
        continue;
      }
      values[k] = load<N>(x + row + pack * N);
      gradients[k] = load<N>(gradient + row + pack * N);
      if (kIsEarly && sum_gradient != nullptr) {
        more[k] = load<N>(sum_gradient + row + pack * N);
      }
      const Pack<T, N> weights = load<N>(weight + pack * N);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float normal = (widen(values[k].at[i]) - middle) * scale;
        const float dy = widen(gradients[k].at[i]), weighted = dy * factor(weights.at[i]);
        sums.at[0] += weighted * normal;
        if constexpr (kCentered) {
          sums.at[1] += weighted;
          of_parameters[0][k][i] += dy * normal;
          of_parameters[1][k][i] += dy;
        } else {
          of_parameters[0][k][i] += dy * multiplied<T>(normal, form);
        }
      }
    }
    const Sums<kParameters> of_row = sums_of_block(sums);
    const float mean_product = of_row.at[0] / static_cast<float>(size);
    const float mean_gradient =
        kCentered ? of_row.at[kParameters - 1] / static_cast<float>(size) : 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int pack = pack_of(k);
      if (pack >= packs) {
        continue;
      }
      const Pack<T, N> weights = load<N>(weight + pack * N);
      if constexpr (!kIsEarly) {  // loads again, because the registers cannot hold both
        gradients[k] = load<N>(gradient + row + pack * N);
      }
      if (!kIsEarly && sum_gradient != nullptr) {
        more[k] = load<N>(sum_gradient + row + pack * N);
      }
      Pack<T, N> out;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float normal = (widen(values[k].at[i]) - middle) * scale;
        const float weighted = widen(gradients[k].at[i]) * factor(weights.at[i]);
        const float dx = (weighted - mean_gradient - normal * mean_product) * scale;
        narrow(sum_gradient != nullptr ? dx + widen(more[k].at[i]) : dx, out.at[i]);
      }
      store(out, x_gradient + row + pack * N);
    }
  }
  const int64_t run = static_cast<int64_t>(blockIdx.x) * kParameters * size;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int pack = pack_of(k);
    if (pack >= packs) {
      continue;
    }
#pragma unroll
    for (int i = 0; i < kParameters * N; ++i) {
      runs[run + i / N * size + pack * N + i % N] = of_parameters[i / N][k][i % N];
    }
  }
}

constexpr int kGroupsOfRuns = 16;

/// Sums the runs in a fixed order. Each block processes as many columns as a warp has threads, in
/// groups of runs. A run contains sums of the weight [size] and, if it is long enough, of the bias.
template <class T>
__global__ void norm_weight_kernel(
    const float* runs, int64_t count, int length, int size, T* weight, T* bias) {
  __shared__ float groups[kGroupsOfRuns][kWarpOfNorms];
  begin_shared(groups);
  const int lane = static_cast<int>(threadIdx.x % kWarpOfNorms);
  const int group = static_cast<int>(threadIdx.x / kWarpOfNorms);
  const int column = static_cast<int>(blockIdx.x) * kWarpOfNorms + lane;
  float sum = 0;
  for (int64_t run = group; run < count && column < length; run += kGroupsOfRuns) {
    sum += runs[run * length + column];
  }
  groups[group][lane] = sum;
  __syncthreads();
  if (group == 0 && column < length) {
    for (int other = 1; other < kGroupsOfRuns; ++other) {
      sum += groups[other][lane];
    }
    narrow(sum, column < size ? weight[column] : bias[column - size]);
  }
}

/// Calls function(packs, is_centered) with compile-time constants, where `packs` is the smallest
/// number of packs per thread that can store a row.
template <class Function>
void with_packs(int64_t packs, bool is_centered, const Function& function) {
  const int64_t each = (packs + kMostThreadsOfNorms - 1) / kMostThreadsOfNorms;
  const auto with = [&](auto few) {
    return is_centered ? function(few, std::true_type{}) : function(few, std::false_type{});
  };
  if (each <= 1) {
    return with(std::integral_constant<int, 1>{});
  }
  if (each == 2) {
    return with(std::integral_constant<int, 2>{});
  }
  return function(std::integral_constant<int, 4>{}, std::false_type{});
}

int threads_of_norm(int64_t packs) {
  const int64_t warps = (packs + kWarpOfNorms - 1) / kWarpOfNorms;
  return static_cast<int>(
      warps * kWarpOfNorms < kMostThreadsOfNorms ? warps * kWarpOfNorms : kMostThreadsOfNorms);
}

}  // namespace

void normalize(Number number, const Norm& norm, cudaStream_t stream) {
  with_type(number, [&](auto type) {
    using T = decltype(type);
    const int64_t packs = norm.size / kPackOfNorms<T>;
    with_packs(packs, norm.mean != nullptr, [&](auto each, auto is_centered) {
      launch(
          norm_kernel<T, decltype(each)::value, decltype(is_centered)::value>,
          norm.rows,
          threads_of_norm(packs),
          stream,
          static_cast<const T*>(norm.x),
          static_cast<const T*>(norm.residual),
          static_cast<const T*>(norm.weight),
          static_cast<const T*>(norm.bias),
          static_cast<T*>(norm.sum),
          static_cast<T*>(norm.y),
          norm.mean,
          norm.inverse,
          static_cast<int>(norm.size),
          norm.eps,
          norm.form);
    });
  });
}

void normalize_backward(Number number, const NormBackward& norm, cudaStream_t stream) {
  const int64_t length = norm.size * (norm.mean != nullptr ? 2 : 1);
  with_type(number, [&](auto type) {
    using T = decltype(type);
    const int64_t packs = norm.size / kPackOfNorms<T>;
    const int64_t count = runs_of_norm(norm.rows, norm.size * sizeof(T));
    with_packs(packs, norm.mean != nullptr, [&](auto each, auto is_centered) {
      launch(
          norm_backward_kernel<T, decltype(each)::value, decltype(is_centered)::value>,
          count,
          threads_of_norm(packs),
          stream,
          static_cast<const T*>(norm.gradient),
          static_cast<const T*>(norm.sum_gradient),
          static_cast<const T*>(norm.x),
          static_cast<const T*>(norm.weight),
          norm.mean,
          norm.inverse,
          static_cast<T*>(norm.x_gradient),
          norm.runs,
          norm.rows,
          static_cast<int>(norm.size),
          norm.form);
    });
    launch(
        norm_weight_kernel<T>,
        (length + kWarpOfNorms - 1) / kWarpOfNorms,
        kGroupsOfRuns * kWarpOfNorms,
        stream,
        static_cast<const float*>(norm.runs),
        count,
        static_cast<int>(length),
        static_cast<int>(norm.size),
        static_cast<T*>(norm.weight_gradient),
        static_cast<T*>(norm.bias_gradient));
  });
}

}  // namespace lockstep::cuda
