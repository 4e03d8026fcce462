// Kernel launches. When compiled for a CPU, as in the kernel tests, tests/cuda/on_cpu.h executes
// the kernels instead.
#pragma once

#include <cuda_runtime.h>

#ifdef __CUDACC__

namespace lockstep::cuda {

/// Launches `kernel` on the stream with `blocks` blocks of `threads` threads.
template <class... Parameters, class... Arguments>
void launch(
    void (*kernel)(Parameters...),
    int64_t blocks,
    int threads,
    cudaStream_t stream,
    Arguments... arguments) {
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(
      arguments...);
}

/// Marks shared memory as uninitialized. Must be called directly after its declaration. The CPU
/// tests fill it with arbitrary values.
template <class T>
__device__ inline void begin_shared(T&) {}

}  // namespace lockstep::cuda

#endif
