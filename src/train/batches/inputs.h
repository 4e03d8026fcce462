// From the loader's rows to a forward pass.
#pragma once

#include <cstdint>
#include <span>

#include <c10/core/Device.h>

#include "data/loader.h"
#include "nn/forward_context.h"

namespace lockstep::train {

/// The rows as tensors on the CPU, where objectives count their targets.
nn::ForwardInputs to_inputs(const data::MicroBatch& batch);
/// The same on the device.
nn::ForwardInputs to_device(const nn::ForwardInputs& inputs, c10::Device device);
/// What the shapes of a rank's micro-batches follow from, as a number that a double holds.
int64_t shapes_of(std::span<const nn::ForwardInputs> inputs);

}  // namespace lockstep::train
