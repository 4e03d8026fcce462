// What ops takes from this library: kernels over tensors.
#pragma once

#include "ops/cuda_loops.h"

namespace lockstep::cuda {

ops::CudaLoops loops();

}  // namespace lockstep::cuda
