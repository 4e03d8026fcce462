// Which of a model's parameters are not trained.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// Those of `names` in which one of the regular expressions (ECMAScript's grammar) is found: at any
/// place, so "^" and "$" say where. Throws Error (kConfig) where one is not a regular expression or
/// is found in no name, and where nothing is left to train.
std::set<std::string> frozen_parameters(
    const std::vector<std::string>& names, std::span<const std::string> patterns);

/// The number of blocks up to and with the one whose name ("model.layers.7") the regular expression
/// matches whole. Error (kConfig), which names the blocks: it is none, or matches no block or
/// several.
int64_t layers_through(const ModelConfig& model, const std::string& module_regex);
/// A pattern for frozen_parameters that leaves those to be trained whose names one of `patterns`
/// matches whole; nothing where that is all of them. Error (kConfig): one matches none.
std::optional<std::string> freeze_all_but(
    const ModelConfig& model, std::span<const std::string> patterns);

}  // namespace lockstep::model
