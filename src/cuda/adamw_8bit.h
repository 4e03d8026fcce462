// AdamW with 8-bit moments on a GPU. Takes plain pointers.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::cuda {

/// Arrays that start at the first element of a block of 256. The moments are codes with one scale
/// per block (optim/dynamic_map.h); all other arrays are as in AdamWPointers.
struct AdamW8bitPointers {
  const float* gradient = nullptr;
  const void* low_gradient = nullptr;  // bfloat16
  float* weight = nullptr;
  void* low = nullptr;
  uint8_t* exp_avg = nullptr;
  uint8_t* exp_avg_sq = nullptr;
  float* exp_avg_absmax = nullptr;
  float* exp_avg_sq_absmax = nullptr;
  const float* maps =
      nullptr;  // [4, 256]: values and midpoints of the signed map, then of the unsigned map
};
/// Computes the step in one pass. The result is bitwise equal to that of the CPU loops.
void adamw_8bit(
    const AdamW8bitPointers& pointers, const float* numbers, int64_t count, cudaStream_t stream);

}  // namespace lockstep::cuda
