// Frozen parameters of a model.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// Returns the names that match any of the regular expressions (ECMAScript). Matches may be
/// anywhere in the name; use "^" and "$" to anchor. Throws Error (kConfig) if a pattern is invalid
/// or matches no name, or if no trainable parameter remains.
std::set<std::string> frozen_parameters(
    const std::vector<std::string>& names, std::span<const std::string> patterns);

/// Returns the number of blocks up to and including the block whose name ("model.layers.7") fully
/// matches the regular expression. Throws Error (kConfig), listing the blocks, if the pattern is
/// invalid or matches none or several.
int64_t layers_through(const ModelConfig& model, const std::string& module_regex);
/// Returns a pattern for frozen_parameters that freezes all parameters except those whose names
/// fully match one of `patterns`; nullopt if none is frozen. Throws Error (kConfig) if a pattern
/// matches no name.
std::optional<std::string> freeze_all_but(
    const ModelConfig& model, std::span<const std::string> patterns);

}  // namespace lockstep::model
