// task.class_weights by the names of labels.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "config/core/value.h"

namespace lockstep::config {

/// Of task.class_weights, which may be a map: a list of "label=weight" in its place. What is no
/// scalar stays, for errors.
void list_class_weights(Value& tree);

/// Of "spam=3": the label and the weight, which may be any number; nothing where it is no such
/// text.
std::optional<std::pair<std::string, double>> named_weight(std::string_view text);

}  // namespace lockstep::config
