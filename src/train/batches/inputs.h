// Converts the loader's micro-batches to model inputs.
#pragma once

#include <cstdint>
#include <span>

#include <c10/core/Device.h>

#include "data/loader.h"
#include "nn/forward_context.h"

namespace lockstep::train {

/// Returns the rows as CPU tensors. They stay on the CPU until to_device(), because objectives
/// count their targets there.
nn::ForwardInputs to_inputs(const data::MicroBatch& batch);
/// Copies the inputs to the device.
nn::ForwardInputs to_device(const nn::ForwardInputs& inputs, c10::Device device);
/// Returns a hash of the shapes of a rank's micro-batches. It can be represented exactly as a
/// double.
int64_t shapes_of(std::span<const nn::ForwardInputs> inputs);

}  // namespace lockstep::train
