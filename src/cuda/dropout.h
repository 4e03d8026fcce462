// Dropout of ops/dropout.h on a GPU. Takes plain pointers.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "cuda/number.h"
#include "ops/dropout_place.h"

namespace lockstep::cuda {

/// Applies dropout to `from` [count] and writes the result to `to`. There is one key in device
/// memory for each `per_row` elements. An element is retained and multiplied by `scale` if its 32
/// random bits are at least `threshold`.
void dropout(
    Number number,
    const void* from,
    void* to,
    int64_t count,
    const int64_t* keys,
    int64_t per_row,
    const ops::DropoutPlace& place,
    uint32_t threshold,
    float scale,
    cudaStream_t stream);

}  // namespace lockstep::cuda
