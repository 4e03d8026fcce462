// The token loss on GPUs.
#pragma once

#include "ops/cuda_loops.h"

namespace lockstep::cuda {

ops::CudaLoops loops();

}  // namespace lockstep::cuda
