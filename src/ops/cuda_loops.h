// What liblockstep_cuda.so offers the operations of this module, once it is loaded.
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

/// What a norm reads and writes: x, y and, where it is x + residual that is normalized, these
/// [..., C] of one type; weight [C]; inverse float32, of each row. A layer norm has a bias [C],
/// too, and means as it has inverses; both undefined: it is an RMS norm. They begin at multiples of
/// 16 bytes.
struct NormTensors {
  Tensor x, residual, weight, bias, sum, y, mean, inverse;  // residual and sum may be undefined
};
/// And its backward pass: `x` is what was normalized.
struct NormGradientInputs {
  Tensor gradient, sum_gradient, x, weight, mean, inverse;  // sum_gradient may be undefined
};
struct NormGradients {
  Tensor x, weight, bias;  // of RMS norms there is no bias
};

/// What a step of AdamW whose moments have 8 bits reads and writes, of elements from the first of a
/// block of 256 on; as in adamw.h but for the moments.
struct AdamW8bitBuffers {
  Tensor parameter, master, gradient;        // [n]; master undefined: the parameter is float32
  Tensor exp_avg, exp_avg_sq;                // [n] uint8
  Tensor exp_avg_absmax, exp_avg_sq_absmax;  // float32, one a block
  Tensor maps;  // [4, 256] float32: values and middles, of the signed map and the other
};

/// On the current stream; tensors are on one GPU and contiguous, but for logits, whose rows may
/// lie apart. float32, bfloat16 or float16 logits [n, V]; targets [n] int64; everything else of
/// them [n] float32. See softmax_rows.h.
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
  /// See adamw.h; not empty.
  void (*adamw)(const AdamWBuffers& buffers, const Tensor& numbers) = nullptr;
  /// By such numbers as adamw; not empty.
  void (*adamw_8bit)(const AdamW8bitBuffers& buffers, const Tensor& numbers) = nullptr;
  /// As in rope.h: float32, bfloat16 or float16 heads [B, T, H, D], not empty, last dims dense; cos
  /// and sin float32, contiguous.
  void (*rotate)(
      const Tensor& from,
      const Tensor& to,
      const Tensor& cos,
      const Tensor& sin,
      float sign,
      const RotatedHeads& heads) = nullptr;
  /// As `dropout` in dropout.h: float32, bfloat16 or float16 `from` [B, ...], not empty; `keys` [B]
  /// int64 on the GPU.
  void (*dropout)(
      const Tensor& from,
      const Tensor& to,
      const Tensor& keys,
      const DropoutPlace& place,
      uint32_t threshold,
      float scale) = nullptr;
  /// Rows and columns of a part of packed weights (packed_part.h) -> out [rows, columns], not
  /// empty, float32, bfloat16 or float16; of 4 bits rounded to `packed` first.
  void (*unpack)(
      const Tensor& bytes,
      const UnpackPlace& place,
      at::ScalarType packed,
      const Tensor& out) = nullptr;
  /// See float8.h: bfloat16, not empty, one of the strides 1. `largest` [n, 1], of each row.
  void (*largest_of_rows)(const FactoredRows& from, const Tensor& largest) = nullptr;
  /// Into `result`, whose scales are as many as `largest`.
  void (*round_to_float8)(
      const FactoredRows& from, const Tensor& largest, const Float8Rows& result) = nullptr;
  /// silu(gate) * up, and its gradients: float32, bfloat16 or float16 of one size, not empty.
  void (*swiglu)(const Tensor& gate, const Tensor& up, const Tensor& out) = nullptr;
  void (*swiglu_backward)(
      const Tensor& gate,
      const Tensor& up,
      const Tensor& out_gradient,
      const Tensor& gate_gradient,
      const Tensor& up_gradient) = nullptr;
  /// As in norms.h: float32, bfloat16 or float16, not empty, of rows that takes_norm() says are
  /// taken.
  bool (*takes_norm)(const Tensor& x, bool is_centered) = nullptr;
  void (*norm)(const NormTensors& tensors, float eps, RmsForm form) = nullptr;
  void (*norm_backward)(
      const NormGradientInputs& inputs, const NormGradients& gradients, RmsForm form) = nullptr;
  /// Adds share * the squares of float32, bfloat16 or float16 numbers, not empty, to the float64
  /// `sums` [kSquareSums], whose sum is theirs (square_sums.h).
  void (*add_squares)(const Tensor& from, double share, const Tensor& sums) = nullptr;
  /// values *= factor: float32, bfloat16 or float16, not empty; a float32 factor on their GPU.
  void (*scale)(const Tensor& values, const Tensor& factor) = nullptr;
  /// See captured_step.h.
  void (*run_aside)(c10::Device device, const std::function<void()>& body) = nullptr;
  std::unique_ptr<StepGraph> (*capture)(c10::Device device, const std::function<void()>& body) =
      nullptr;
  /// Pins pages of the host's until the result is gone. Throws c10::Error: there are no more.
  std::shared_ptr<void> (*pin)(void* memory, int64_t bytes) = nullptr;
};

/// Called once, by the library's entry point.
void set_cuda_loops(const CudaLoops& loops);
/// A member is null if there is none: ATen's operations serve.
const CudaLoops& cuda_loops();

}  // namespace lockstep::ops
