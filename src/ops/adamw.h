// AdamW over flat buffers in one pass: gradient, float32 weights, moments and the rounded
// low-precision weights are each read or written once.
//
// Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2, in
// torch.optim.AdamW's form, with g = gradient * gradient_scale and t = step:
//   w -= lr * weight_decay * w
//   m  = beta1 * m + (1 - beta1) * g          v = beta2 * v + (1 - beta2) * g * g
//   w -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// One step's numbers.
struct AdamWStep {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  /// Multiplies the gradient before anything else: clipping, the average over tokens.
  double gradient_scale = 1.0;
  /// Counts from 1.
  int64_t step = 1;
};

/// The flat buffers of one run of parameters: contiguous, of one length n (which may be 0), on one
/// device.
struct AdamWBuffers {
  at::Tensor parameter{};  // [n] float32 or bfloat16: written
  at::Tensor
      master;  // [n] float32, updated; undefined, or `parameter` itself, where that is float32
  at::Tensor gradient{};    // [n] float32 or bfloat16: read
  at::Tensor exp_avg{};     // [n] float32, m: updated
  at::Tensor exp_avg_sq{};  // [n] float32, v: updated
};

/// The step, in place. On the CPU: one pass, over at::get_num_threads() threads; each element's
/// result depends on that element alone and has the same bits on every x86-64 machine, number of
/// threads and split of the buffers. On a GPU one kernel where liblockstep_cuda.so has it, else
/// ATen's operations. Records nothing for autograd.
/// Throws Error(kInternal) where the buffers do not go together.
void adamw_step(const AdamWBuffers& buffers, const AdamWStep& step);

/// A step's numbers as float32 [kAdamWNumbers] in host memory, as the loops take them: what is done
/// with a tensor of them, on the buffers' device, can be captured in a CUDA graph. Element 0 is
/// gradient_scale.
inline constexpr int64_t kAdamWNumbers = 9;
at::Tensor adamw_numbers(const AdamWStep& step);
/// The step by such numbers; to the same bits on the CPU.
void adamw_step_by(const AdamWBuffers& buffers, const at::Tensor& numbers);

/// The same formulas in ATen's operations, plainly, on any device: the reference of the tests.
void adamw_step_reference(const AdamWBuffers& buffers, const AdamWStep& step);

}  // namespace lockstep::ops
