// AdamW over flat buffers on a GPU: a launch over plain pointers.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::cuda {

/// What ops/adamw.h says, in one pass; `numbers` are ops::AdamWNumbers in device memory. Exactly
/// one of the gradients is there; `low`, the rounded bfloat16 weights, may be null.
struct AdamWPointers {
  const float* gradient = nullptr;
  const void* low_gradient = nullptr;  // bfloat16
  float* weight = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  void* low = nullptr;
};
void adamw(const AdamWPointers& pointers, const float* numbers, int64_t count, cudaStream_t stream);

}  // namespace lockstep::cuda
