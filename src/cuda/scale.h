// In-place scaling on a GPU, launched on plain pointers.
#pragma once

#include <cuda_runtime.h>

#include "cuda/number.h"

namespace lockstep::cuda {

/// values *= *factor, with the factor on the device; a factor of 1 skips the values.
void scale(Number number, void* values, int64_t count, const float* factor, cudaStream_t stream);

}  // namespace lockstep::cuda
