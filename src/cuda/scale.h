// In-place scaling on a GPU. Takes plain pointers.
#pragma once

#include <cuda_runtime.h>

#include "cuda/number.h"

namespace lockstep::cuda {

/// Computes values *= *factor with a factor in device memory. If the factor is 1, the values are
/// not accessed.
void scale(Number number, void* values, int64_t count, const float* factor, cudaStream_t stream);

}  // namespace lockstep::cuda
