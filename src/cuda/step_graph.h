// Captures steps in CUDA graphs.
#pragma once

#include <functional>
#include <memory>

#include "ops/captured_step.h"

namespace lockstep::cuda {

/// Runs `body` on a side stream, which first waits for the current stream. The current stream then
/// waits for the side stream.
void run_aside(c10::Device device, const std::function<void()>& body);
std::unique_ptr<ops::StepGraph> capture(c10::Device device, const std::function<void()>& body);

}  // namespace lockstep::cuda
