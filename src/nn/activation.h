// Activations by name of Hugging Face's configs.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/model_config.h"

namespace lockstep::nn {

/// Element by element, in the type of x.
at::Tensor activate(model::Activation activation, const at::Tensor& x);

/// activate(gate) * up.
at::Tensor activate_gate(
    model::Activation activation, const at::Tensor& gate, const at::Tensor& up);

}  // namespace lockstep::nn
