// Steps captured in CUDA graphs.
#pragma once

#include <functional>
#include <memory>

#include "ops/captured_step.h"

namespace lockstep::cuda {

/// On a stream of its own, which waits for the current one, and which the current one waits for.
void run_aside(c10::Device device, const std::function<void()>& body);
std::unique_ptr<ops::StepGraph> capture(c10::Device device, const std::function<void()>& body);

}  // namespace lockstep::cuda
