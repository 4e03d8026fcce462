// Packed weights on a GPU, unpacked: launches over plain pointers.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "cuda/number.h"
#include "ops/unpack_place.h"

namespace lockstep::cuda {

/// out [place.rows, place.columns] of `number`; of 4 bits rounded to `packed` first. `bytes` is
/// aligned to 16.
void unpack(
    Number number,
    Number packed,
    const uint8_t* bytes,
    const ops::UnpackPlace& place,
    void* out,
    cudaStream_t stream);

}  // namespace lockstep::cuda
