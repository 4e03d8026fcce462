// Activation functions, selected by their Hugging Face config name.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/model_config.h"

namespace lockstep::nn {

/// Applies the activation element-wise, in the type of x.
at::Tensor activate(model::Activation activation, const at::Tensor& x);

/// Gating function of an MLP: an activation or, if a limit is set, gpt-oss's clamped form
/// (model::Experts).
struct Gate {
  Gate(model::Activation activation) : activation(activation) {}  // NOLINT: implicit by design
  /// Constructs the gating function of a model's experts.
  explicit Gate(const model::ModelConfig& config)
      : activation(config.activation),
        limit(config.experts.gate_limit),
        slope(config.experts.gate_slope) {}
  model::Activation activation;
  double limit = 0, slope = 1;
};

/// Returns activate(gate) * up, or the clamped form.
at::Tensor activate_gate(const Gate& form, const at::Tensor& gate, const at::Tensor& up);

}  // namespace lockstep::nn
