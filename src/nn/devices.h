// Distribution of a model over several devices for generation. Each unit is on its assigned device,
// and activations are copied between devices.
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
