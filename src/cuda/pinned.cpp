#include "cuda/pinned.h"

#include <new>

#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <sys/mman.h>

namespace lockstep::cuda {

at::Tensor pinned(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  ::madvise(memory, size, MADV_HUGEPAGE);
  if (const cudaError_t error = cudaHostRegister(memory, size, cudaHostRegisterPortable);
      error != cudaSuccess) {
    ::munmap(memory, size);
    C10_CUDA_CHECK(error);
  }
  const auto release = [size](void* pages) {
    cudaHostUnregister(pages);
    ::munmap(pages, size);
  };
  return at::from_blob(memory, {bytes}, release, at::TensorOptions().dtype(at::kByte));
}

}  // namespace lockstep::cuda
