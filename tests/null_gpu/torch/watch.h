// Interface between the null GPU and the library that watches libtorch.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace null_gpu {
struct Access {
  uintptr_t begin = 0;
  size_t bytes = 0;
  bool is_write = false;
};
}  // namespace null_gpu

extern "C" {
/// Called when this thread enters and leaves an operation, with the accesses of its kernels.
void null_gpu_begin_operation(const char* name, const null_gpu::Access* inputs, size_t count);
void null_gpu_end_operation(const null_gpu::Access* outputs, size_t count);
/// Called when libtorch's allocator hands out memory for a stream, and when the memory may be
/// reused.
void null_gpu_gave(int device, const void* memory, size_t bytes, cudaStream_t stream);
void null_gpu_took(const void* memory, size_t bytes);
}
