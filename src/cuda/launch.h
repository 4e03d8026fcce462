// Launches of kernels. Compiled for a processor, as the tests of kernels do, tests/cuda/on_cpu.h
// runs them instead.
#pragma once

#include <cuda_runtime.h>

#ifdef __CUDACC__

namespace lockstep::cuda {

/// `kernel` in `blocks` blocks of `threads`, on the stream.
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

/// Stands behind the declaration of what a block's threads share: there is anything in it. Tests
/// see to that.
template <class T>
__device__ inline void begin_shared(T&) {}

}  // namespace lockstep::cuda

#endif
