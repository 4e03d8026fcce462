// RMS norms as ops/norms.h has them, of x or of x + residual, on a GPU: launches over plain
// pointers, each of which begins at a multiple of 16 bytes.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "cuda/number.h"
#include "ops/rms_form.h"

namespace lockstep::cuda {

/// Rows of so many bytes are taken: a multiple of 16, and not more than threads hold in registers.
constexpr bool takes_norm_rows(int64_t bytes) {
  constexpr int64_t kMostThreads = 512, kMostPacks = 4;
  return bytes > 0 && bytes % 16 == 0 && bytes / 16 <= kMostThreads * kMostPacks;
}

/// x, y [rows, size]; the inverse of each row's root mean square goes to `inverse`. With a residual
/// what is normalized is x + residual, which goes to `sum`; null: there is none.
struct RmsNorm {
  const void* x;
  const void* residual;
  const void* weight;
  void* sum;
  void* y;
  float* inverse;
  int64_t rows, size;
  float eps;
  ops::RmsForm form;
};
void rms_norm(Number number, const RmsNorm& norm, cudaStream_t stream);

/// How many sums of rows the weight's gradient is made of.
inline int64_t runs_of_norm(int64_t rows) {
  constexpr int64_t kMostRuns = 512;  // two blocks for each multiprocessor of a large GPU
  return rows < kMostRuns ? rows : kMostRuns;
}

/// The gradient of x, with that of the sum where it is not null, and of the weight. `x` is what was
/// normalized; `runs` [runs_of_norm(rows), size] is memory to work in.
struct RmsNormBackward {
  const void* gradient;
  const void* sum_gradient;
  const void* x;
  const void* weight;
  const float* inverse;
  void* x_gradient;
  float* runs;
  void* weight_gradient;
  int64_t rows, size;
  ops::RmsForm form;
};
void rms_norm_backward(Number number, const RmsNormBackward& norm, cudaStream_t stream);

}  // namespace lockstep::cuda
