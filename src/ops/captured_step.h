// A step whose kernels the host launches all at once: captured in a CUDA graph, and replayed.
#pragma once

#include <functional>
#include <memory>

#include <c10/core/Device.h>

namespace lockstep::ops {

/// What was captured.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
  /// On the current stream.
  virtual void replay() = 0;
};

/// Runs a step of fixed shapes (forward, backward, reduction, optimizer) again and again. On a GPU
/// the first calls of run() run the body on a stream aside, the next one captures it, and from then
/// on each replays the graph, so that hundreds of small launches cost the host one. On other
/// devices, or without liblockstep_cuda.so, run() is the body.
///
/// The body does the same each time, on tensors that stay where they are: inputs are copied into
/// them before run(), results are read after it. It reads no value back to the host (item()), and
/// what the host computes anew each time, such as a learning rate or AdamW's count of steps, is in
/// tensors; else the number of the captured call stays for ever. Collectives of NCCL may be in it,
/// those of Gloo may not. Not thread-safe; blocks as the body does.
class CapturedStep {
 public:
  CapturedStep(c10::Device device, std::function<void()> body);
  void run();
  bool is_captured() const { return graph_ != nullptr; }

 private:
  static constexpr int kWarmRuns = 3;  // kernels are chosen and memory is found in these
  c10::Device device_;
  std::function<void()> body_;
  int runs_ = 0;
  std::unique_ptr<StepGraph> graph_;
};

}  // namespace lockstep::ops
