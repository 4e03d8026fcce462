// Returns the table of this library's kernels for ops.
#pragma once

#include "ops/cuda_loops.h"

namespace lockstep::cuda {

ops::CudaLoops loops();

}  // namespace lockstep::cuda
