// Table of CUDA kernels, which is filled when liblockstep_cuda.so is loaded.
#pragma once

#include <memory>

#include "ops/adamw.h"
#include "ops/captured_step.h"
#include "ops/dropout_place.h"
#include "ops/float8.h"
#include "ops/rms_form.h"
#include "ops/rotated_heads.h"
#include "ops/token_loss.h"
#include "ops/unpack_place.h"

namespace lockstep::ops {

/// Tensors of a norm, all aligned to 16 bytes. x, y and, if x + residual is normalized, residual
/// and sum are [..., C] of one type; weight is [C]; inverse is float32 with one element per row.
/// Layer norms also have a bias [C] and one mean per row; both are undefined for RMS norms.
struct NormTensors {
  Tensor x, residual, weight, bias, sum, y, mean, inverse;  // residual and sum may be undefined
};
/// Inputs of the backward pass; `x` is the tensor that was normalized.
struct NormGradientInputs {
  Tensor gradient, sum_gradient, x, weight, mean, inverse;  // sum_gradient may be undefined
};
struct NormGradients {
  Tensor x, weight, bias;  // bias is undefined for RMS norms
};

/// Buffers of an AdamW step with 8-bit moments. Same as AdamWBuffers (adamw.h), except for the
/// moments. The buffers must start at the first element of a block of 256.
struct AdamW8bitBuffers {
  Tensor parameter, master, gradient;        // [n]; `master` is undefined for float32 parameters
  Tensor exp_avg, exp_avg_sq;                // [n] uint8 codes
  Tensor exp_avg_absmax, exp_avg_sq_absmax;  // float32, one per block: largest magnitude
  Tensor
      maps;  // [4, 256] float32: values and midpoints of the signed map, then of the unsigned map
};

/// CUDA kernels, which run on the current stream. Tensors are on one GPU and contiguous, except for
/// logits, whose rows may be strided. Logits [n, V] are float32, bfloat16 or float16; targets [n]
/// are int64; all other per-row tensors are float32 [n]. See softmax_rows.h.
struct CudaLoops {
  void (*row_statistics)(const Tensor& logits, const Tensor& targets, const RowStatistics& result) =
      nullptr;
  void (*logits_become_gradient)(
      const Tensor& logits,
      const Tensor& targets,
      const Tensor& log_sum,
      const Tensor& softmax_factor,
      const Tensor& target_factor,
      float inverse_cap) = nullptr;
  /// See adamw.h. The buffers must not be empty.
  void (*adamw)(const AdamWBuffers& buffers, const Tensor& numbers) = nullptr;
  /// Uses the same factors as adamw. The buffers must not be empty.
  void (*adamw_8bit)(const AdamW8bitBuffers& buffers, const Tensor& numbers) = nullptr;
  /// See rope.h. Heads [B, T, H, D] are float32, bfloat16 or float16, not empty, with a dense last
  /// dimension; cos and sin are float32 and contiguous.
  void (*rotate)(
      const Tensor& from,
      const Tensor& to,
      const Tensor& cos,
      const Tensor& sin,
      float sign,
      const RotatedHeads& heads) = nullptr;
  /// See `dropout` in dropout.h. `from` [B, ...] is float32, bfloat16 or float16 and not empty;
  /// `keys` [B] are int64 on the GPU.
  void (*dropout)(
      const Tensor& from,
      const Tensor& to,
      const Tensor& keys,
      const DropoutPlace& place,
      uint32_t threshold,
      float scale) = nullptr;
  /// Unpacks rows and columns of packed weights (packed_part.h) into out [rows, columns], which is
  /// not empty, and float32, bfloat16 or float16. 4-bit values are first rounded to `packed`.
  void (*unpack)(
      const Tensor& bytes,
      const UnpackPlace& place,
      at::ScalarType packed,
      const Tensor& out) = nullptr;
  /// See float8.h. The rows are bfloat16 and not empty; one of their strides is 1. `largest` [n, 1]
  /// receives the largest magnitude of each row.
  void (*largest_of_rows)(const FactoredRows& from, const Tensor& largest) = nullptr;
  /// Rounds into `result`, which has one scale for each element of `largest`.
  void (*round_to_float8)(
      const FactoredRows& from, const Tensor& largest, const Float8Rows& result) = nullptr;
  /// silu(gate) * up, and its gradients. The tensors are float32, bfloat16 or float16, of equal
  /// size and not empty.
  void (*swiglu)(const Tensor& gate, const Tensor& up, const Tensor& out) = nullptr;
  void (*swiglu_backward)(
      const Tensor& gate,
      const Tensor& up,
      const Tensor& out_gradient,
      const Tensor& gate_gradient,
      const Tensor& up_gradient) = nullptr;
  /// See norms.h. The tensors are float32, bfloat16 or float16 and not empty. The norm kernels may
  /// be called only if takes_norm() returns true.
  bool (*takes_norm)(const Tensor& x, bool is_centered) = nullptr;
  void (*norm)(const NormTensors& tensors, float eps, RmsForm form) = nullptr;
  void (*norm_backward)(
      const NormGradientInputs& inputs, const NormGradients& gradients, RmsForm form) = nullptr;
  /// Adds share * value^2 for all values to the float64 partial sums `sums` [kSquareSums]
  /// (square_sums.h). Values are float32, bfloat16 or float16 and not empty.
  void (*add_squares)(const Tensor& from, double share, const Tensor& sums) = nullptr;
  /// values *= factor. Values are float32, bfloat16 or float16 and not empty; the factor is float32
  /// on the same GPU.
  void (*scale)(const Tensor& values, const Tensor& factor) = nullptr;
  /// See captured_step.h.
  void (*run_aside)(c10::Device device, const std::function<void()>& body) = nullptr;
  std::unique_ptr<StepGraph> (*capture)(c10::Device device, const std::function<void()>& body) =
      nullptr;
  /// Pins host pages for the lifetime of the returned object. Throws c10::Error if no more pages
  /// can be pinned.
  std::shared_ptr<void> (*pin)(void* memory, int64_t bytes) = nullptr;
};

/// Sets the table. Called once by the entry point of liblockstep_cuda.so.
void set_cuda_loops(const CudaLoops& loops);
/// Returns the table. Members without a kernel are null; callers then use ATen operations.
const CudaLoops& cuda_loops();

}  // namespace lockstep::ops
