// Rotary position embedding of ops/rope.h on a GPU. Takes plain pointers.
#pragma once

#include <cuda_runtime.h>

#include "cuda/number.h"
#include "ops/rotated_heads.h"

namespace lockstep::cuda {

/// Rotates values i and i + half of each head by the angle with the given cosine and sine, or by
/// the negative angle if `sign` is -1. Values from 2 * half on are copied. `from` and `to` must not
/// overlap.
void rotate(
    Number number,
    const void* from,
    void* to,
    const float* cos,
    const float* sin,
    float sign,
    const ops::RotatedHeads& heads,
    cudaStream_t stream);

}  // namespace lockstep::cuda
