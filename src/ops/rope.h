// Rotary position embeddings in the layouts of Hugging Face checkpoints.
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Values of a head that form a pair and are rotated together.
enum class RotaryPairs {
  kHalves,      // values i and i + d
  kNeighbours,  // values 2 i and 2 i + 1 (GLM)
};

/// Rotates x [B, T, H, D]. cos and sin are float32 [T, d] or [B, T, d] with 2 d <= D. The first 2 d
/// values of each head form pairs (a, b), which become (a cos - b sin, b cos + a sin); the other
/// values are unchanged. Computes in float32 and rounds once.
Tensor rotate(
    const Tensor& x,
    const Tensor& cos,
    const Tensor& sin,
    RotaryPairs pairs = RotaryPairs::kHalves);

/// Splits a packed query-key-value projection [B, T, (H + 2 Hkv) D] and rotates queries and keys,
/// in one forward pass and one backward pass. Returns query [B, H, T, D], and key and value [B,
/// Hkv, T, D], as views of one tensor. cos and sin are as in rotate(), with D = head_dim.
std::array<Tensor, 3> split_rotated_heads(
    const Tensor& packed, int64_t head_dim, int64_t kv_heads, const Tensor& cos, const Tensor& sin);

}  // namespace lockstep::ops
