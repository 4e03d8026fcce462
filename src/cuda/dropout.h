// Dropout as ops/dropout.h has it, on a GPU: a launch over plain pointers.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "cuda/number.h"
#include "ops/dropout_place.h"

namespace lockstep::cuda {

/// from and to [count], a key in device memory for each `per_row` of them. An element is kept, and
/// multiplied by `scale`, where its 32 bits are not below `threshold`.
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
