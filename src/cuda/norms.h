// RMS norms and layer norms as ops/norms.h has them, of x or of x + residual, on a GPU: launches
// over plain pointers, each of which begins at a multiple of 16 bytes.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "cuda/number.h"
#include "ops/rms_form.h"

namespace lockstep::cuda {

/// Rows of so many bytes are taken: a multiple of 16, and not more than threads hold in registers,
/// beside the sums of one parameter's gradient or, of layer norms, of two.
constexpr bool takes_norm_rows(int64_t bytes, bool is_centered) {
  constexpr int64_t kMostThreads = 512;
  const int64_t most_packs = is_centered ? 2 : 4;
  return bytes > 0 && bytes % 16 == 0 && bytes / 16 <= kMostThreads * most_packs;
}

/// x, y [rows, size]; the inverse of each row's deviation, or root mean square, goes to `inverse`.
/// With a residual what is normalized is x + residual, which goes to `sum`; null: there is none. A
/// layer norm has a bias, and writes the rows' means; null: it is an RMS norm.
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
  ops::RmsForm form;  // of RMS norms
};
void normalize(Number number, const Norm& norm, cudaStream_t stream);

/// How many sums of rows, of `bytes` each, the gradients of weight and bias are made of: as many as
/// keep a large GPU busy, which has room for more blocks where these are small.
inline int64_t runs_of_norm(int64_t rows, int64_t bytes) {
  const int64_t most = bytes > 2048 ? 512 : 1024;
  return rows < most ? rows : most;
}

/// The gradient of x, with that of the sum where it is not null, and of the weight and, if there is
/// a mean, the bias. `x` is what was normalized; `runs` [runs_of_norm(), parameters, size] is
/// memory to work in.
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
