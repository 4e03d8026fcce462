// Sums of squares on a GPU. Takes plain pointers.
#pragma once

#include <cuda_runtime.h>

#include "cuda/number.h"

namespace lockstep::cuda {

/// Adds share * value^2 for `count` values to the partial sums `sums` [ops::kSquareSums]. sums[i]
/// receives every kSquareSums-th run of values. The order of additions is fixed.
void add_squares(
    Number number,
    const void* from,
    int64_t count,
    double share,
    double* sums,
    cudaStream_t stream);

}  // namespace lockstep::cuda
