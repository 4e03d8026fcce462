// Between the null GPU and the library that watches libtorch.
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
/// This thread enters an operation, and leaves it: what its kernels read and write.
void null_gpu_begin_operation(const char* name, const null_gpu::Access* inputs, size_t count);
void null_gpu_end_operation(const null_gpu::Access* outputs, size_t count);
/// libtorch's allocator gave memory out for a stream; may give it out again.
void null_gpu_gave(int device, const void* memory, size_t bytes, cudaStream_t stream);
void null_gpu_took(const void* memory, size_t bytes);
}
