// Rotary positions, in the half-rotation layout of Hugging Face's files.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// x [B, T, H, D]; cos and sin [T, d] or [B, T, d] float32, 2 d <= D. The first 2 d numbers of each
/// head, as two halves (a, b), become (a cos - b sin, b cos + a sin); the others stay. Computed in
/// float32, rounded once.
Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin);

}  // namespace lockstep::ops
