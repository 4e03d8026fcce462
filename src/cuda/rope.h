// Rotary position embedding as ops/rope.h has it, on a GPU: a launch over plain pointers.
#pragma once

#include <cuda_runtime.h>

#include "cuda/number.h"
#include "ops/rotated_heads.h"

namespace lockstep::cuda {

/// Numbers i and i + half of each head turned by the angle whose cosine and sine are given, and by
/// -1 times it where `sign` is that; what is behind 2 * half is copied. `from` and `to` do not
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
