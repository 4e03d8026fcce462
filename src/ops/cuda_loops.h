// What liblockstep_cuda.so offers the operations of this module, once it is loaded.
#pragma once

#include "ops/adamw.h"
#include "ops/captured_step.h"
#include "ops/token_loss.h"

namespace lockstep::ops {

/// On the current stream; tensors are on one GPU and contiguous. float32, bfloat16 or float16
/// logits [n, V]; targets [n] int64; everything else of them [n] float32. See softmax_rows.h.
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
  /// See captured_step.h.
  void (*run_aside)(c10::Device device, const std::function<void()>& body) = nullptr;
  std::unique_ptr<StepGraph> (*capture)(c10::Device device, const std::function<void()>& body) =
      nullptr;
};

/// Called once, by the library's entry point.
void set_cuda_loops(const CudaLoops& loops);
/// Null where there are none: ATen's operations serve.
const CudaLoops* cuda_loops();

}  // namespace lockstep::ops
