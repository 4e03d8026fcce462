// Parameters that a family's files store in one tensor with others: the experts of gpt-oss.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "checkpoint/pieces.h"
#include "model/description.h"

namespace lockstep::train {

/// Returns the stacked tensor that the parameter is written to; empty if it has a separate tensor.
std::optional<checkpoint::StackedTensor> written_stack(const model::ParameterSpec& parameter);
/// Returns the stacked tensors of all such parameters of a model, by name.
std::map<std::string, checkpoint::StackedTensor> written_stacks(const model::ModelConfig& config);

}  // namespace lockstep::train
