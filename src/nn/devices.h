// A model over several devices, for generation: units live where a placement says, activations
// travel.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "model/placement.h"
#include "nn/language_model.h"

namespace lockstep::nn {

/// Moves each unit's parameters to its device, and makes the model move activations between them as
/// it runs (LanguageModel::around_unit). The model must be whole.
void place_on_devices(
    LanguageModel& model,
    const model::Placement& placement,
    const std::vector<at::Device>& devices);

}  // namespace lockstep::nn
