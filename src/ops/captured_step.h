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
///
/// Where the capture fails, such as for want of memory, the body runs as it is from then on: it
/// must be able to begin anew after it threw.
class CapturedStep {
 public:
  /// `agree` tells whether all ranks whose collectives are in the body captured it, given whether
  /// this one did: it is called once, by all. Null: there are no others.
  CapturedStep(
      c10::Device device,
      std::function<void()> body,
      std::function<bool(bool captured)> agree = nullptr);
  void run();
  bool is_captured() const { return graph_ != nullptr; }

 private:
  static constexpr int kWarmRuns = 3;  // kernels are chosen and memory is found in these
  c10::Device device_;
  std::function<void()> body_;
  std::function<bool(bool)> agree_;
  int runs_ = 0;
  bool gave_up_ = false;
  std::unique_ptr<StepGraph> graph_;
};

}  // namespace lockstep::ops
