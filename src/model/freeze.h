// Selection of frozen parameters.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// Returns the names that match any of the regular expressions (ECMAScript). A match may be
/// anywhere in the name; anchor with "^" and "$". Throws Error (kConfig) if a pattern is invalid or
/// matches no name, or if no trainable parameter remains.
std::set<std::string> frozen_parameters(
    const std::vector<std::string>& names, std::span<const std::string> patterns);

/// Returns the number of blocks up to and including the block whose full name ("model.layers.7")
/// matches the regular expression. Throws Error (kConfig), listing the blocks, if the pattern is
/// invalid or does not match exactly one block.
int64_t layers_through(const ModelConfig& model, const std::string& module_regex);
/// Returns a pattern for frozen_parameters() that freezes all parameters except those whose full
/// names match one of `patterns`. Returns nullopt if none is frozen. Throws Error (kConfig) if a
/// pattern matches no name.
std::optional<std::string> freeze_all_but(
    const ModelConfig& model, std::span<const std::string> patterns);

}  // namespace lockstep::model
