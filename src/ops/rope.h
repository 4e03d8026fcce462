// Rotary positions, in the layouts of Hugging Face's files.
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Which numbers of a head turn together.
enum class RotaryPairs {
  kHalves,      // i and i + d
  kNeighbours,  // 2 i and 2 i + 1 (GLM)
};

/// x [B, T, H, D]; cos and sin [T, d] or [B, T, d] float32, 2 d <= D. The first 2 d numbers of each
/// head, as pairs (a, b), become (a cos - b sin, b cos + a sin); the others stay. Computed in
/// float32, rounded once.
Tensor rotate(
    const Tensor& x,
    const Tensor& cos,
    const Tensor& sin,
    RotaryPairs pairs = RotaryPairs::kHalves);

/// A packed projection of queries, keys and values, packed [B, T, (H + 2 Hkv) D], taken apart and
/// its queries and keys rotated, in one pass forward and one backward: query [B, H, T, D], key and
/// value [B, Hkv, T, D], views of one tensor. cos and sin as above, 2 d <= D = head_dim.
std::array<Tensor, 3> split_rotated_heads(
    const Tensor& packed, int64_t head_dim, int64_t kv_heads, const Tensor& cos, const Tensor& sin);

}  // namespace lockstep::ops
