// SwiGLU of ops/activations.h on a GPU, launched on plain pointers.
#pragma once

#include <cuda_runtime.h>

#include "cuda/number.h"

namespace lockstep::cuda {

/// out = silu(gate) * up, `count` values each.
void swiglu(
    Number number, const void* gate, const void* up, void* out, int64_t count, cudaStream_t stream);
/// Computes the gradients of gate and up from that of `out`.
void swiglu_backward(
    Number number,
    const void* gate,
    const void* up,
    const void* out_gradient,
    void* gate_gradient,
    void* up_gradient,
    int64_t count,
    cudaStream_t stream);

}  // namespace lockstep::cuda
