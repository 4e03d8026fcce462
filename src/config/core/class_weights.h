// Class weights by label name (task.class_weights).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "config/core/value.h"

namespace lockstep::config {

/// Replaces a map in task.class_weights by a list of "label=weight". Values that are not scalars
/// are not changed and reported later.
void list_class_weights(Value& tree);

/// Returns the label and the weight, which may be any number, of "spam=3"; nullopt for other text.
std::optional<std::pair<std::string, double>> named_weight(std::string_view text);

}  // namespace lockstep::config
