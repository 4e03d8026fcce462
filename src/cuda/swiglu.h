// SwiGLU of ops/activations.h on a GPU. Takes plain pointers.
#pragma once

#include <cuda_runtime.h>

#include "cuda/number.h"

namespace lockstep::cuda {

/// Computes out = silu(gate) * up for `count` values.
void swiglu(
    Number number, const void* gate, const void* up, void* out, int64_t count, cudaStream_t stream);
/// Computes the gradients of gate and up from the gradient of `out`.
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
