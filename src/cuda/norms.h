// RMS norms and layer norms of ops/norms.h on a GPU, of x or of x + residual. Takes plain pointers
// that are aligned to 16 bytes.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "cuda/number.h"
#include "ops/rms_form.h"

namespace lockstep::cuda {

/// Returns true if rows of `bytes` bytes are supported. Their size must be a multiple of 16, and
/// they must fit in the threads' registers together with the gradient sums of one parameter (layer
/// norms: two).
constexpr bool takes_norm_rows(int64_t bytes, bool is_centered) {
  constexpr int64_t kMostThreads = 512;
  const int64_t most_packs = is_centered ? 2 : 4;
  return bytes > 0 && bytes % 16 == 0 && bytes / 16 <= kMostThreads * most_packs;
}

/// x and y are [rows, size]. `inverse` receives the inverse standard deviation or the inverse root
/// mean square of each row. With a residual, x + residual is normalized and written to `sum`; null:
/// no residual. A layer norm has a bias and writes the means of the rows; null: an RMS norm.
struct Norm {
  const void* x;
  const void* residual;
  const void* weight;
  const void* bias;
  void* sum;
  void* y;
  float* mean;
  float* inverse;
  int64_t rows, size;
  float eps;
  ops::RmsForm form;  // for RMS norms
};
void normalize(Number number, const Norm& norm, cudaStream_t stream);

/// Returns the number of partial sums (runs) for the gradients of weight and bias, where each run
/// has `bytes` bytes. The number is sufficient for a large GPU, which can run more blocks if runs
/// are small.
inline int64_t runs_of_norm(int64_t rows, int64_t bytes) {
  const int64_t most = bytes > 2048 ? 512 : 1024;
  return rows < most ? rows : most;
}

/// Gradients of x (including that of the sum, if not null), of the weight and, if there is a mean,
/// of the bias. `x` is the tensor that was normalized. `runs` [runs_of_norm(), parameters, size] is
/// scratch memory.
struct NormBackward {
  const void* gradient;
  const void* sum_gradient;
  const void* x;
  const void* weight;
  const float* mean;
  const float* inverse;
  void* x_gradient;
  float* runs;
  void* weight_gradient;
  void* bias_gradient;
  int64_t rows, size;
  ops::RmsForm form;
};
void normalize_backward(Number number, const NormBackward& norm, cudaStream_t stream);

}  // namespace lockstep::cuda
