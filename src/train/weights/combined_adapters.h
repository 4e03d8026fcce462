// Combines several saved adapters into one, like PEFT's add_weighted_adapter with "cat" and
// "linear".
#pragma once

#include <memory>

#include "train/weights/adapter_values.h"
#include "train/weights/adapters.h"

namespace lockstep::train {

struct CombinedAdapters {
  model::Adapters adapters;  // scale is 1; combined adapters are not saved
  std::shared_ptr<const AdapterValues> values;
};

/// Combines `request.parts`, with weights w and scales s. With "cat", the factors are stacked,
/// which gives the sum of w s B A. With "linear", A is the sum of sign(w) sqrt(|w| s) A and B is
/// the sum of sqrt(|w| s) B. A part that has no adapter for a layer is skipped for this layer.
/// Throws Error (config, data) if a part does not fit the model, or if factors to be summed differ
/// in rank.
CombinedAdapters combine(const AdapterRequest& request, const model::ModelConfig& model);

}  // namespace lockstep::train
