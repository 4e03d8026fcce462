// Captures a step in a CUDA graph after warm-up runs and replays it.
#include "ops/captured_step.h"

#include <exception>
#include <utility>

#include "base/log.h"
#include "ops/cuda_loops.h"

namespace lockstep::ops {

CapturedStep::CapturedStep(
    c10::Device device, std::function<void()> body, std::function<bool(bool captured)> agree)
    : device_(device),
      body_(std::move(body)),
      agree_(std::move(agree)) {}

void CapturedStep::run() {
  const CudaLoops& loops = cuda_loops();
  if (!device_.is_cuda() || loops.capture == nullptr || gave_up_) {
    body_();
    return;
  }
  if (runs_++ < kWarmRuns) {
    loops.run_aside(device_, body_);
    return;
  }
  if (graph_ == nullptr) {
    try {
      graph_ = loops.capture(device_, body_);
    } catch (const std::exception& error) {
      log_warning("step not captured in a CUDA graph: {}", error.what());
    }
    if (const bool captured = graph_ != nullptr; agree_ ? !agree_(captured) : !captured) {
      graph_.reset();
      gave_up_ = true;
      body_();
      return;
    }
  }
  graph_->replay();  // capturing alone does not execute the step
}

}  // namespace lockstep::ops
