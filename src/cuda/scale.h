// Numbers times a factor, on a GPU: a launch over plain pointers.
#pragma once

#include <cuda_runtime.h>

#include "cuda/number.h"

namespace lockstep::cuda {

/// values *= *factor, which is on the device: where it is 1 nothing is read.
void scale(Number number, void* values, int64_t count, const float* factor, cudaStream_t stream);

}  // namespace lockstep::cuda
