// Rotary position embedding kernel.
#include "cuda/launch.h"
#include "cuda/pack.h"
#include "cuda/rope.h"

namespace lockstep::cuda {
namespace {

constexpr unsigned kThreadsOfRope = 256;

/// Assigns tokens to blocks: several tokens per block or, if a token has more packs than a block
/// has threads, several blocks per token. Uses 32-bit counts, because 64-bit divisions would take
/// longer than the rotation itself.
struct TokensOfBlocks {
  unsigned packs_of_token, tokens, blocks_of_token;

  explicit TokensOfBlocks(int64_t packs)
      : packs_of_token(static_cast<unsigned>(packs)),
        tokens(packs < kThreadsOfRope ? kThreadsOfRope / packs_of_token : 1),
        blocks_of_token((packs_of_token + kThreadsOfRope - 1) / kThreadsOfRope) {}
};

/// Each thread rotates N pairs, or copies N values after the pairs.
template <class T, int N>
__global__ void __launch_bounds__(kThreadsOfRope) rotate_kernel(
    const T* from,
    T* to,
    const float* cos,
    const float* sin,
    float sign,
    ops::RotatedHeads at,
    TokensOfBlocks blocks) {
  const auto packs_of_head = static_cast<unsigned>((at.size - at.half) / N);
  const unsigned part = blockIdx.x % blocks.blocks_of_token;
  const unsigned of_block = threadIdx.x / blocks.packs_of_token;
  const unsigned token = blockIdx.x / blocks.blocks_of_token * blocks.tokens + of_block;
  const unsigned pack = part * kThreadsOfRope + threadIdx.x - of_block * blocks.packs_of_token;
  if (of_block >= blocks.tokens || token >= at.rows * at.length || pack >= blocks.packs_of_token) {
    return;
  }
  const unsigned head = pack / packs_of_head;
  const int64_t i = int64_t{pack - head * packs_of_head} * N;
  const unsigned row = token / static_cast<unsigned>(at.length);
  const int64_t position = token - row * at.length;
  from += row * at.from_stride[0] + position * at.from_stride[1] + head * at.from_stride[2] + i;
  to += row * at.to_stride[0] + position * at.to_stride[1] + head * at.to_stride[2] + i;
  if (i >= at.half) {
    store(load<N>(from + at.half), to + at.half);
    return;
  }
  const Pack<T, N> a = load<N>(from), b = load<N>(from + at.half);
  const int64_t angle = (at.angles_by_row ? token : position) * at.half + i;
  Pack<T, N> first_of_pairs, second_of_pairs;
  constexpr int kAngles = N < 4 ? N : 4;  // at most 16 bytes
#pragma unroll
  for (int k = 0; k < N; k += kAngles) {
    const auto cosines = load<kAngles>(cos + angle + k), sines = load<kAngles>(sin + angle + k);
#pragma unroll
    for (int j = 0; j < kAngles; ++j) {
      const float x = widen(a.at[k + j]), y = widen(b.at[k + j]);
      const float c = cosines.at[j], s = sines.at[j] * sign;
      narrow(x * c - y * s, first_of_pairs.at[k + j]);
      narrow(y * c + x * s, second_of_pairs.at[k + j]);
    }
  }
  store(first_of_pairs, to);
  store(second_of_pairs, to + at.half);
}

}  // namespace

void rotate(
    Number number,
    const void* from,
    void* to,
    const float* cos,
    const float* sin,
    float sign,
    const ops::RotatedHeads& heads,
    cudaStream_t stream) {
  with_type(number, [&](auto type) {
    using T = decltype(type);
    constexpr int kPack = static_cast<int>(16 / sizeof(T));
    bool is_packed = begins_pack(from, 16) && begins_pack(to, 16) && begins_pack(cos, 16) &&
                     begins_pack(sin, 16) && heads.size % kPack == 0 && heads.half % kPack == 0;
    for (int dim = 0; dim < 3; ++dim) {
      is_packed =
          is_packed && heads.from_stride[dim] % kPack == 0 && heads.to_stride[dim] % kPack == 0;
    }
    const TokensOfBlocks blocks(heads.heads * (heads.size - heads.half) / (is_packed ? kPack : 1));
    launch(
        is_packed ? rotate_kernel<T, kPack> : rotate_kernel<T, 1>,
        (heads.rows * heads.length + blocks.tokens - 1) / blocks.tokens * blocks.blocks_of_token,
        kThreadsOfRope,
        stream,
        static_cast<const T*>(from),
        static_cast<T*>(to),
        cos,
        sin,
        sign,
        heads,
        blocks);
  });
}

}  // namespace lockstep::cuda
