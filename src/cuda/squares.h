// Squares of gradients, added up on a GPU: a launch over plain pointers.
#pragma once

#include <cuda_runtime.h>

#include "cuda/number.h"

namespace lockstep::cuda {

/// sums[i] += share * the squares of every kSquareSums-th run of `count` numbers, all of them
/// together; the order is the same each time. `sums` [ops::kSquareSums].
void add_squares(
    Number number,
    const void* from,
    int64_t count,
    double share,
    double* sums,
    cudaStream_t stream);

}  // namespace lockstep::cuda
