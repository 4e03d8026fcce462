// Parameters that some families store together in one tensor, such as the experts of gpt-oss.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "checkpoint/pieces.h"
#include "model/description.h"

namespace lockstep::train {

/// Returns the stacked tensor that the parameter is written to. Empty if it is stored separately.
std::optional<checkpoint::StackedTensor> written_stack(const model::ParameterSpec& parameter);
/// Returns the stacked tensors of a model by name.
std::map<std::string, checkpoint::StackedTensor> written_stacks(const model::ModelConfig& config);

}  // namespace lockstep::train
