#include "ops/captured_step.h"

#include <utility>

#include "ops/cuda_loops.h"

namespace lockstep::ops {

CapturedStep::CapturedStep(c10::Device device, std::function<void()> body)
    : device_(device),
      body_(std::move(body)) {}

void CapturedStep::run() {
  const CudaLoops* loops = device_.is_cuda() ? cuda_loops() : nullptr;
  if (loops == nullptr) {
    body_();
    return;
  }
  if (runs_++ < kWarmRuns) {
    loops->run_aside(device_, body_);
    return;
  }
  if (graph_ == nullptr) {
    graph_ = loops->capture(device_, body_);
  }
  graph_->replay();  // capturing computes nothing
}

}  // namespace lockstep::ops
