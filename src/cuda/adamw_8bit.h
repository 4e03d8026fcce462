// AdamW whose moments have 8 bits, on a GPU: a launch over plain pointers.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::cuda {

/// Elements from the first of a block of 256 on. The moments are codes with a scale a block
/// (optim/dynamic_map.h); everything else as in AdamWPointers.
struct AdamW8bitPointers {
  const float* gradient = nullptr;
  const void* low_gradient = nullptr;  // bfloat16
  float* weight = nullptr;
  void* low = nullptr;
  uint8_t* exp_avg = nullptr;
  uint8_t* exp_avg_sq = nullptr;
  float* exp_avg_absmax = nullptr;
  float* exp_avg_sq_absmax = nullptr;
  const float* maps = nullptr;  // [4, 256]: values and middles, of the signed map and the other
};
/// One pass; to the same bits as the loops of CPUs.
void adamw_8bit(
    const AdamW8bitPointers& pointers, const float* numbers, int64_t count, cudaStream_t stream);

}  // namespace lockstep::cuda
