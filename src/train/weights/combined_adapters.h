// Combines several saved adapters into one, like PEFT's add_weighted_adapter with "cat" and
// "linear".
#pragma once

#include <memory>

#include "train/weights/adapter_values.h"
#include "train/weights/adapters.h"

namespace lockstep::train {

struct CombinedAdapters {
  model::Adapters adapters;  // with scale 1; combined adapters are not saved
  std::shared_ptr<const AdapterValues> values;
};

/// Combines `request.parts` with weights w and scales s. Stacked factors (cat) give the sum of w s
/// B A. For linear, A is the sum of sign(w) sqrt(|w| s) A, and B is the sum of sqrt(|w| s) B. If
/// some parts have no adapter for a linear, the others are combined. Throws Error (config, data) if
/// a part does not fit the model, or if the ranks of summed factors differ.
CombinedAdapters combine(const AdapterRequest& request, const model::ModelConfig& model);

}  // namespace lockstep::train
