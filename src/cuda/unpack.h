// Unpacking of quantized weights on a GPU. Takes plain pointers.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "cuda/number.h"
#include "ops/unpack_place.h"

namespace lockstep::cuda {

/// Unpacks weights to out [place.rows, place.columns] of type `number`. 4-bit values are first
/// rounded to `packed`. `bytes` must be aligned to 16 bytes.
void unpack(
    Number number,
    Number packed,
    const uint8_t* bytes,
    const ops::UnpackPlace& place,
    void* out,
    cudaStream_t stream);

}  // namespace lockstep::cuda
