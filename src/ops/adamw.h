// AdamW over flat buffers in one pass: each buffer (gradient, float32 weights, moments, rounded
// low-precision weights) is read and written at most once.
//
// Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2, in the form
// of torch.optim.AdamW, with g = gradient * gradient_scale and t = step:
//   w -= lr * weight_decay * w
//   m  = beta1 * m + (1 - beta1) * g          v = beta2 * v + (1 - beta2) * g * g
//   w -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// Hyperparameters of one step.
struct AdamWStep {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  /// Factor that is applied to the gradient first; used for clipping and for averaging over tokens.
  double gradient_scale = 1.0;
  /// Step number, counted from 1.
  int64_t step = 1;
};

/// Flat buffers of a group of parameters: contiguous, on one device, and all of the same length n,
/// which may be 0.
struct AdamWBuffers {
  at::Tensor parameter{};  // [n] float32 or bfloat16, written
  at::Tensor
      master;  // [n] float32, updated; undefined or equal to `parameter` for float32 parameters
  at::Tensor gradient{};    // [n] float32 or bfloat16, read
  at::Tensor exp_avg{};     // [n] float32: first moment m, updated
  at::Tensor exp_avg_sq{};  // [n] float32: second moment v, updated
};

/// Performs the step in place. On the CPU, one pass runs on at::get_num_threads() threads. The
/// result of an element depends only on that element, and its bits are the same on every x86-64
/// machine, for any number of threads and any split of the buffers. On a GPU, the step is one
/// kernel of liblockstep_cuda.so if available; otherwise it uses ATen operations. Records nothing
/// for autograd. Throws Error (internal) if the buffers do not match.
void adamw_step(const AdamWBuffers& buffers, const AdamWStep& step);

/// Returns the factors of a step as a float32 tensor [kAdamWNumbers] in host memory. A step that
/// reads its factors from a tensor on the buffers' device can be captured in a CUDA graph. Element
/// 0 is gradient_scale.
inline constexpr int64_t kAdamWNumbers = 9;
at::Tensor adamw_numbers(const AdamWStep& step);
/// Performs the step with factors from adamw_numbers. On the CPU, the result is bitwise equal to
/// that of adamw_step.
void adamw_step_by(const AdamWBuffers& buffers, const at::Tensor& numbers);

/// Reference implementation of the same formulas with ATen operations, for any device. Used by the
/// tests.
void adamw_step_reference(const AdamWBuffers& buffers, const AdamWStep& step);

}  // namespace lockstep::ops
