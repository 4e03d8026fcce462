// From the loader's rows to a forward pass.
#pragma once

#include <c10/core/Device.h>

#include "data/loader.h"
#include "nn/forward_context.h"

namespace lockstep::train {

/// The rows as tensors on the CPU, where objectives count their targets.
nn::ForwardInputs to_inputs(const data::MicroBatch& batch);
/// The same on the device.
nn::ForwardInputs to_device(const nn::ForwardInputs& inputs, c10::Device device);

}  // namespace lockstep::train
