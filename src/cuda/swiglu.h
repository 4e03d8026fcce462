// The gate of a gated MLP as ops/activations.h has it, on a GPU: launches over plain pointers.
#pragma once

#include <cuda_runtime.h>

#include "cuda/number.h"

namespace lockstep::cuda {

/// out = silu(gate) * up, of `count` numbers each.
void swiglu(
    Number number, const void* gate, const void* up, void* out, int64_t count, cudaStream_t stream);
/// Its gradients, from that of `out`.
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
