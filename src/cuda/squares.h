// Sums of squares on a GPU, launched on plain pointers.
#pragma once

#include <cuda_runtime.h>

#include "cuda/number.h"

namespace lockstep::cuda {

/// Adds share * the squares of `count` values to the partial sums `sums` [ops::kSquareSums]:
/// sums[i] gets every kSquareSums-th run of values. The order of additions is fixed.
void add_squares(
    Number number,
    const void* from,
    int64_t count,
    double share,
    double* sums,
    cudaStream_t stream);

}  // namespace lockstep::cuda
