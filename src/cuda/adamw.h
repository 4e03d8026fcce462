// AdamW over flat buffers on a GPU. Takes plain pointers.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::cuda {

/// Arrays of the step in ops/adamw.h, which runs in one pass. `numbers` are ops::adamw_numbers in
/// device memory. Exactly one of the two gradients must be set. `low`, the rounded bfloat16
/// weights, may be null.
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
