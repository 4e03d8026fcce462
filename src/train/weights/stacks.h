// Parameters that a family's files hold in one tensor with others: the experts of gpt-oss.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "checkpoint/pieces.h"
#include "model/description.h"

namespace lockstep::train {

/// Where files are written with the parameter in; nothing: it has a tensor of its own.
std::optional<checkpoint::StackedTensor> written_stack(const model::ParameterSpec& parameter);
/// Of all of a model's that are written so, by name.
std::map<std::string, checkpoint::StackedTensor> written_stacks(const model::ModelConfig& config);

}  // namespace lockstep::train
