// A training step captured in a CUDA graph and replayed.
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

/// Runs a step of fixed shapes (forward, backward, reduction, optimizer) repeatedly. On a GPU the
/// first calls of run() run the body on a side stream, and the next call captures it. From then on
/// each call replays the graph, so that hundreds of small kernels cost the host one launch. On
/// other devices, or without liblockstep_cuda.so, run() calls the body.
///
/// The body must do the same work each time, on tensors at fixed addresses: inputs are copied into
/// them before run(), and results are read after it. It must not read a value back to the host
/// (item()). Values that the host computes for each step, such as the learning rate or AdamW's step
/// number, must be in tensors; otherwise the value of the captured call is replayed forever. The
/// body may contain NCCL collectives, but no Gloo collectives. Not thread-safe; blocks as the body
/// does.
///
/// If the capture fails, for example because memory is insufficient, all later calls run the body
/// directly. The body must therefore be restartable after it threw.
class CapturedStep {
 public:
  /// `agree` receives whether this rank captured the body and returns whether all ranks that share
  /// its collectives did. All ranks call it once. Null: there are no other ranks.
  CapturedStep(
      c10::Device device,
      std::function<void()> body,
      std::function<bool(bool captured)> agree = nullptr);
  void run();
  bool is_captured() const { return graph_ != nullptr; }

 private:
  static constexpr int kWarmRuns = 3;  // warm-up runs, which select kernels and allocate memory
  c10::Device device_;
  std::function<void()> body_;
  std::function<bool(bool)> agree_;
  int runs_ = 0;
  bool gave_up_ = false;
  std::unique_ptr<StepGraph> graph_;
};

}  // namespace lockstep::ops
