// From the loader's rows to a forward pass.
#pragma once

#include <c10/core/Device.h>

#include "data/loader.h"
#include "nn/forward_context.h"

namespace lockstep::train {

/// The rows as tensors on the device.
nn::ForwardInputs to_inputs(const data::MicroBatch& batch, c10::Device device);

/// Labels that are predicted: all but the ignored, and but each row's first.
int64_t count_targets(const data::MicroBatch& batch);

}  // namespace lockstep::train
