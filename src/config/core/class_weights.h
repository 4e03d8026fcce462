// Class weights by label name (task.class_weights).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "config/core/value.h"

namespace lockstep::config {

/// Replaces a map in task.class_weights with a list of "label=weight" strings. Non-scalar values
/// are left unchanged and reported later.
void list_class_weights(Value& tree);

/// Parses "spam=3" to a label and a weight. The weight may be any number. Returns nullopt for other
/// text.
std::optional<std::pair<std::string, double>> named_weight(std::string_view text);

}  // namespace lockstep::config
