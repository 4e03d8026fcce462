#include "cuda/pinned.h"

#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>

namespace lockstep::cuda {

std::shared_ptr<void> pin(void* memory, int64_t bytes) {
  C10_CUDA_CHECK(cudaHostRegister(memory, static_cast<size_t>(bytes), cudaHostRegisterPortable));
  return {memory, [](void* pages) { cudaHostUnregister(pages); }};
}

}  // namespace lockstep::cuda
