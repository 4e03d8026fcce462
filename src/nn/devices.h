// Model placement on several devices for generation: each unit resides on its assigned device;
// activations are copied between devices.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "model/placement.h"
#include "nn/language_model.h"

namespace lockstep::nn {

/// Moves each unit's parameters to its device and installs a function that copies activations
/// between devices (LanguageModel::around_unit). The model must be whole.
void place_on_devices(
    LanguageModel& model,
    const model::Placement& placement,
    const std::vector<at::Device>& devices);

}  // namespace lockstep::nn
