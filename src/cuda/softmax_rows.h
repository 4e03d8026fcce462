// Row-wise operations of the token loss on a GPU. Takes plain pointers.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "cuda/number.h"

namespace lockstep::cuda {

/// Computes for each row of logits [rows, size] (row stride `stride`): the largest logit, the sum
/// of exp(logit - largest), and the logit of the target (0 if the target is outside [0, size)).
/// Reads the logits once.
void row_statistics(
    Number number,
    const void* logits,
    const int64_t* targets,
    int64_t rows,
    int64_t size,
    int64_t stride,
    float* maximum,
    float* total,
    float* target_logit,
    cudaStream_t stream);

/// Replaces the logits with (softmax * softmax_factor - onehot(target) * target_factor) times 1 -
/// (logit * inverse_cap)^2.
void logits_become_gradient(
    Number number,
    void* logits,
    const int64_t* targets,
    int64_t rows,
    int64_t size,
    int64_t stride,
    const float* log_sum,
    const float* softmax_factor,
    const float* target_factor,
    float inverse_cap,
    cudaStream_t stream);

}  // namespace lockstep::cuda
