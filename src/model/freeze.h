// Which of a model's parameters are not trained.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

namespace lockstep::model {

/// Those of `names` in which one of the regular expressions (ECMAScript's grammar) is found: at any
/// place, so "^" and "$" say where. Throws Error (kConfig) where one is not a regular expression or
/// is found in no name, and where nothing is left to train.
std::set<std::string> frozen_parameters(
    const std::vector<std::string>& names, std::span<const std::string> patterns);

}  // namespace lockstep::model
