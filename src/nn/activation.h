// Activations by name of Hugging Face's configs.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/model_config.h"

namespace lockstep::nn {

/// Element by element, in the type of x.
at::Tensor activate(model::Activation activation, const at::Tensor& x);

/// What a gate does to what it is multiplied with: an activation, or with a limit gpt-oss's form
/// (model::Experts).
struct Gate {
  Gate(model::Activation activation) : activation(activation) {}  // NOLINT: a gate is mostly one
  /// Of the experts of a model.
  explicit Gate(const model::ModelConfig& config)
      : activation(config.activation),
        limit(config.experts.gate_limit),
        slope(config.experts.gate_slope) {}
  model::Activation activation;
  double limit = 0, slope = 1;
};

/// activate(gate) * up, or what the form makes of them.
at::Tensor activate_gate(const Gate& form, const at::Tensor& gate, const at::Tensor& up);

}  // namespace lockstep::nn
