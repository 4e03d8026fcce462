// Table of CUDA kernels, filled when liblockstep_cuda.so is loaded.
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

/// Tensors of a norm. x and y, and residual and sum if x + residual is normalized, are [..., C] of
/// one type; weight is [C]; inverse is float32 per row. A layer norm also has a bias [C], and a
/// mean per row; both are undefined for an RMS norm. All are aligned to 16 bytes.
struct NormTensors {
  Tensor x, residual, weight, bias, sum, y, mean, inverse;  // residual and sum may be undefined
};
/// Inputs of the backward pass; `x` is the normalized tensor's input.
struct NormGradientInputs {
  Tensor gradient, sum_gradient, x, weight, mean, inverse;  // sum_gradient may be undefined
};
struct NormGradients {
  Tensor x, weight, bias;  // bias is undefined for RMS norms
};

/// Buffers of an AdamW step with 8-bit moments, starting at the first element of a block of 256. As
/// AdamWBuffers (adamw.h), except the moments.
struct AdamW8bitBuffers {
  Tensor parameter, master, gradient;        // [n]; master undefined for float32 parameters
  Tensor exp_avg, exp_avg_sq;                // [n] uint8
  Tensor exp_avg_absmax, exp_avg_sq_absmax;  // float32, one per block
  Tensor
      maps;  // [4, 256] float32: values and midpoints of the signed map, then of the unsigned map
};

/// CUDA kernels, which run on the current stream. Tensors are on one GPU and contiguous, except
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
  /// See adamw.h; the buffers must not be empty.
  void (*adamw)(const AdamWBuffers& buffers, const Tensor& numbers) = nullptr;
  /// Uses the same factors as adamw; the buffers must not be empty.
  void (*adamw_8bit)(const AdamW8bitBuffers& buffers, const Tensor& numbers) = nullptr;
  /// See rope.h. Heads [B, T, H, D] are float32, bfloat16 or float16, not empty, with dense last
  /// dims; cos and sin are float32 and contiguous.
  void (*rotate)(
      const Tensor& from,
      const Tensor& to,
      const Tensor& cos,
      const Tensor& sin,
      float sign,
      const RotatedHeads& heads) = nullptr;
  /// See `dropout` in dropout.h. `from` [B, ...] is float32, bfloat16 or float16, not empty; `keys`
  /// [B] are int64 on the GPU.
  void (*dropout)(
      const Tensor& from,
      const Tensor& to,
      const Tensor& keys,
      const DropoutPlace& place,
      uint32_t threshold,
      float scale) = nullptr;
  /// Unpacks rows and columns of a part of packed weights (packed_part.h) to out [rows, columns],
  /// not empty, float32, bfloat16 or float16. 4-bit values are first rounded to `packed`.
  void (*unpack)(
      const Tensor& bytes,
      const UnpackPlace& place,
      at::ScalarType packed,
      const Tensor& out) = nullptr;
  /// See float8.h; bfloat16, not empty, one of the strides is 1. `largest` [n, 1] is the largest
  /// magnitude of each row.
  void (*largest_of_rows)(const FactoredRows& from, const Tensor& largest) = nullptr;
  /// Rounds into `result`, which has as many scales as `largest` has elements.
  void (*round_to_float8)(
      const FactoredRows& from, const Tensor& largest, const Float8Rows& result) = nullptr;
  /// silu(gate) * up, and its gradients; float32, bfloat16 or float16 of equal size, not empty.
  void (*swiglu)(const Tensor& gate, const Tensor& up, const Tensor& out) = nullptr;
  void (*swiglu_backward)(
      const Tensor& gate,
      const Tensor& up,
      const Tensor& out_gradient,
      const Tensor& gate_gradient,
      const Tensor& up_gradient) = nullptr;
  /// See norms.h; float32, bfloat16 or float16, not empty, if takes_norm() returns true.
  bool (*takes_norm)(const Tensor& x, bool is_centered) = nullptr;
  void (*norm)(const NormTensors& tensors, float eps, RmsForm form) = nullptr;
  void (*norm_backward)(
      const NormGradientInputs& inputs, const NormGradients& gradients, RmsForm form) = nullptr;
  /// Adds share * the squares of float32, bfloat16 or float16 values, not empty, to the float64
  /// partial sums `sums` [kSquareSums] (square_sums.h).
  void (*add_squares)(const Tensor& from, double share, const Tensor& sums) = nullptr;
  /// values *= factor; float32, bfloat16 or float16, not empty, with a float32 factor on the same
  /// GPU.
  void (*scale)(const Tensor& values, const Tensor& factor) = nullptr;
  /// See captured_step.h.
  void (*run_aside)(c10::Device device, const std::function<void()>& body) = nullptr;
  std::unique_ptr<StepGraph> (*capture)(c10::Device device, const std::function<void()>& body) =
      nullptr;
  /// Pins host pages for the lifetime of the result. Throws c10::Error if no more can be pinned.
  std::shared_ptr<void> (*pin)(void* memory, int64_t bytes) = nullptr;
};

/// Called once, by the entry point of liblockstep_cuda.so.
void set_cuda_loops(const CudaLoops& loops);
/// Returns the table. Members without a kernel are null; callers then use ATen's operations.
const CudaLoops& cuda_loops();

}  // namespace lockstep::ops
