// Several saved adapters as one: PEFT's add_weighted_adapter, of "cat" and of "linear".
#pragma once

#include <memory>

#include "train/weights/adapter_values.h"
#include "train/weights/adapters.h"

namespace lockstep::train {

struct CombinedAdapters {
  model::Adapters adapters;  // of scale 1; what is made of several is not saved
  std::shared_ptr<const AdapterValues> values;
};

/// Of `request.parts`, with weights w and scales s. Stacked, their factors give the sum of
/// w s B A; summed, A is that of sign(w) sqrt(|w| s) A, and B of sqrt(|w| s) B. A linear without an
/// adapter in some of them has what the others add. Error (config, data) where a part does not fit
/// the model, or summed factors are of unequal ranks.
CombinedAdapters combine(const AdapterRequest& request, const model::ModelConfig& model);

}  // namespace lockstep::train
