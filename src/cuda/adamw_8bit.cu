// AdamW kernel with 8-bit moments.
#include "cuda/adamw_8bit.h"
#include "cuda/launch.h"
#include "cuda/number.h"
#include "cuda/pack.h"

namespace lockstep::cuda {
namespace {

constexpr int kWarpOf8bit = 32, kThreadsOf8bit = 256, kWarpsOf8bit = kThreadsOf8bit / kWarpOf8bit;
constexpr int kEachOf8bit = 8;                           // number of elements that a thread
                                                         // processes in a block of codes
constexpr int kBlockOf8bit = kWarpOf8bit * kEachOf8bit;  // one warp processes a block
constexpr int kCodesOf8bit = 256;
constexpr int64_t kMostBlocksOf8bit =
    2048;  // beyond this number, each warp processes several blocks of codes

// Rounds each operation separately, as on CPUs (ops/cpu/adamw_kernel.cpp).
__device__ float product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
__device__ float sum(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

/// Factors of a step, in the order of ops::adamw_numbers.
struct Factors8bit {
  float scale, keep, beta1, new1, beta2, new2, rate, root, epsilon;
};

/// Returns the rank of the midpoint at a node of the search tree. The midpoints are stored as a
/// search tree, where the children of node n are 2 n and 2 n + 1, to reduce bank conflicts in
/// shared memory.
__device__ int rank_of_node(int node) {
  int depth = 0;
  while (2 << depth <= node) {
    ++depth;
  }
  return ((2 * (node - (1 << depth)) + 1) << (7 - depth)) - 1;
}

/// Same as DynamicMap::nearest: returns the number of smaller midpoints, 0 for NaN.
__device__ uint8_t nearest(const float (&tree)[kCodesOf8bit], float x) {
  unsigned node = 1;
#pragma unroll
  for (int depth = 0; depth < 8; ++depth) {
    node = 2 * node + (x > tree[node] ? 1 : 0);
  }
  return static_cast<uint8_t>(node - kCodesOf8bit);
}

/// The values of a moment that a thread processes.
struct Moment {
  float values[kEachOf8bit];

  /// Returns the codes and sets the scale of the block that the warp processes.
  __device__ Pack<uint8_t, kEachOf8bit> round(
      const float (&tree)[kCodesOf8bit], float& scale) const {
    float largest = 0;
#pragma unroll
    for (int i = 0; i < kEachOf8bit; ++i) {
      const float magnitude = fabsf(values[i]);
      largest = magnitude > largest ? magnitude : largest;
    }
#pragma unroll
    for (int step = kWarpOf8bit / 2; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(0xffffffffU, largest, step);
      largest = other > largest ? other : largest;
    }
    scale = largest;
    const float inverse = largest > 0 ? 1.0F / largest : 0;
    Pack<uint8_t, kEachOf8bit> codes;
#pragma unroll
    for (int i = 0; i < kEachOf8bit; ++i) {
      const float x = product(values[i], inverse);
      codes.at[i] = nearest(tree, x < -1 ? -1 : x > 1 ? 1 : x);
    }
    return codes;
  }
};

template <bool kWhole, class T>
__device__ Pack<T, kEachOf8bit> some_of_8bit(const T* from, int64_t left) {
  if constexpr (!kWhole) {
    return load_some<kEachOf8bit>(from, left);
  } else if constexpr (sizeof(T) * kEachOf8bit <= 16) {
    return load<kEachOf8bit>(from);
  } else {
    const auto low = load<4>(from), high = load<4>(from + 4);
    return {
        {low.at[0],
         low.at[1],
         low.at[2],
         low.at[3],
         high.at[0],
         high.at[1],
         high.at[2],
         high.at[3]}};
  }
}
template <bool kWhole, class T>
__device__ void write_of_8bit(const Pack<T, kEachOf8bit>& pack, T* to, int64_t left) {
  if constexpr (!kWhole) {
    store_some(pack, to, left);
  } else if constexpr (sizeof(T) * kEachOf8bit <= 16) {
    store(pack, to);
  } else {
    store(Pack<T, 4>{{pack.at[0], pack.at[1], pack.at[2], pack.at[3]}}, to);
    store(Pack<T, 4>{{pack.at[4], pack.at[5], pack.at[6], pack.at[7]}}, to + 4);
  }
}

using Maps = float[4][kCodesOf8bit];  // values of each map, and its midpoints as a tree

template <bool kWhole, class Gradient>
__device__ void update_of_8bit(
    const Gradient* gradient,
    const AdamW8bitPointers& p,
    const Factors8bit& f,
    const Maps& maps,
    int64_t block,
    int64_t begin,
    int64_t left) {
  const auto g = some_of_8bit<kWhole>(gradient + begin, left);
  const auto first = some_of_8bit<kWhole>(static_cast<const uint8_t*>(p.exp_avg) + begin, left);
  const auto second = some_of_8bit<kWhole>(static_cast<const uint8_t*>(p.exp_avg_sq) + begin, left);
  auto w = some_of_8bit<kWhole>(static_cast<const float*>(p.weight) + begin, left);
  const float first_scale = p.exp_avg_absmax[block], second_scale = p.exp_avg_sq_absmax[block];
  Moment m, v;
  Pack<__nv_bfloat16, kEachOf8bit> low;
#pragma unroll
  for (int i = 0; i < kEachOf8bit; ++i) {
    const float scaled = product(widen(g.at[i]), f.scale);
    const float mean = product(maps[0][first.at[i]], first_scale);
    const float square = product(maps[2][second.at[i]], second_scale);
    m.values[i] = sum(product(f.beta1, mean), product(f.new1, scaled));
    v.values[i] = sum(product(f.beta2, square), product(f.new2, product(scaled, scaled)));
    const float below = sum(product(sqrtf(v.values[i]), f.root), f.epsilon);
    w.at[i] = sum(product(f.keep, w.at[i]), -product(f.rate, m.values[i] / below));
    low.at[i] = __float2bfloat16(w.at[i]);
    if (!kWhole && i >= left) {
      m.values[i] = v.values[i] = 0;
    }
  }
  write_of_8bit<kWhole>(w, p.weight + begin, left);
  if (p.low != nullptr) {
    write_of_8bit<kWhole>(low, static_cast<__nv_bfloat16*>(p.low) + begin, left);
  }
  float new_first = 0, new_second = 0;
  write_of_8bit<kWhole>(m.round(maps[1], new_first), p.exp_avg + begin, left);
  write_of_8bit<kWhole>(v.round(maps[3], new_second), p.exp_avg_sq + begin, left);
  if (threadIdx.x % kWarpOf8bit == 0) {
    p.exp_avg_absmax[block] = new_first;
    p.exp_avg_sq_absmax[block] = new_second;
  }
}

/// Each warp processes one block of codes at a time.
template <class Gradient>
__global__ void __launch_bounds__(kThreadsOf8bit) adamw_8bit_kernel(
    const Gradient* gradient,
    AdamW8bitPointers p,
    const float* numbers,
    int64_t count,
    bool is_packed) {
  static_assert(kThreadsOf8bit == kCodesOf8bit);
  __shared__ Maps maps;
  begin_shared(maps);
  const auto code = static_cast<int>(threadIdx.x);
  for (int map = 0; map < 4; map += 2) {
    maps[map][code] = p.maps[map * kCodesOf8bit + code];
    maps[map + 1][code] = code == 0 ? 0 : p.maps[(map + 1) * kCodesOf8bit + rank_of_node(code)];
  }
  __syncthreads();
  const Factors8bit factors{
      numbers[0],
      numbers[1],
      numbers[2],
      numbers[3],
      numbers[4],
      numbers[5],
      numbers[6],
      numbers[7],
      numbers[8]};
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarpsOf8bit + threadIdx.x / kWarpOf8bit;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarpsOf8bit;
  for (int64_t block = warp; block * kBlockOf8bit < count; block += stride) {
    const int64_t begin = block * kBlockOf8bit + threadIdx.x % kWarpOf8bit * kEachOf8bit;
    if (is_packed && (block + 1) * kBlockOf8bit <= count) {
      update_of_8bit<true>(gradient, p, factors, maps, block, begin, kEachOf8bit);
    } else {
      update_of_8bit<false>(gradient, p, factors, maps, block, begin, count - begin);
    }
  }
}

template <class Gradient>
void launch_adamw_8bit(
    const Gradient* gradient,
    const AdamW8bitPointers& p,
    const float* numbers,
    int64_t count,
    cudaStream_t stream) {
  const bool is_packed = begins_pack(gradient, 16) && begins_pack(p.weight, 16) &&
                         begins_pack(p.low, 16) && begins_pack(p.exp_avg, kEachOf8bit) &&
                         begins_pack(p.exp_avg_sq, kEachOf8bit);
  const int64_t of_block = int64_t{kBlockOf8bit} * kWarpsOf8bit;
  const int64_t needed = (count + of_block - 1) / of_block;
  launch(
      adamw_8bit_kernel<Gradient>,
      needed < kMostBlocksOf8bit ? needed : kMostBlocksOf8bit,
      kThreadsOf8bit,
      stream,
      gradient,
      p,
      numbers,
      count,
      is_packed);
}

}  // namespace

void adamw_8bit(
    const AdamW8bitPointers& pointers, const float* numbers, int64_t count, cudaStream_t stream) {
  if (pointers.gradient != nullptr) {
    launch_adamw_8bit(pointers.gradient, pointers, numbers, count, stream);
  } else {
    launch_adamw_8bit(
        static_cast<const __nv_bfloat16*>(pointers.low_gradient), pointers, numbers, count, stream);
  }
}

}  // namespace lockstep::cuda
