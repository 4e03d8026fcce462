// Captures a training step in a CUDA graph and replays it.
#pragma once

#include <functional>
#include <memory>

#include <c10/core/Device.h>

namespace lockstep::ops {

/// A captured graph.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
  /// Launches the graph on the current stream.
  virtual void replay() = 0;
};

/// Runs a step of fixed shapes (forward, backward, reduction, optimizer) repeatedly. On a GPU, the
/// first calls of run() run the body on a side stream, the next call captures it, and all later
/// calls replay the graph, so that the host launches hundreds of small kernels at the cost of one.
/// On other devices, or without liblockstep_cuda.so, run() calls the body.
///
/// The body must do the same work in every call, on tensors at fixed addresses: inputs are copied
/// into these tensors before run(), and results are read after it. The body must not read a value
/// back to the host (item()). Values that the host computes for each step, such as the learning
/// rate or AdamW's step number, must be in tensors; otherwise the value of the captured call is
/// replayed forever. The body may contain NCCL collectives, but no Gloo collectives. Not
/// thread-safe.
///
/// If the capture fails, for example because memory is insufficient, all later calls run the body
/// directly. The body must therefore be restartable after an exception.
class CapturedStep {
 public:
  /// `agree` receives true if this rank captured the body, and returns true if all ranks that share
  /// its collectives did. All of these ranks call it once. Null: no other ranks share the
  /// collectives.
  CapturedStep(
      c10::Device device,
      std::function<void()> body,
      std::function<bool(bool captured)> agree = nullptr);
  void run();
  bool is_captured() const { return graph_ != nullptr; }

 private:
  static constexpr int kWarmRuns = 3;  // number of warm-up runs, in which libraries select kernels
                                       // and allocate memory
  c10::Device device_;
  std::function<void()> body_;
  std::function<bool(bool)> agree_;
  int runs_ = 0;
  bool gave_up_ = false;
  std::unique_ptr<StepGraph> graph_;
};

}  // namespace lockstep::ops
