// Accelerate's configuration file, and TrainingArguments' accelerator_config, as keys of ours.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Whether a tree has the shape of `accelerate config`'s file.
bool is_accelerate(const Value& tree);

/// The file's content as a tree of our keys. Every key of the file is mapped, answered with a
/// warning that says why it does nothing for training (the launcher reads the keys about machines),
/// or a problem.
Value accelerate_settings(
    const Value& file, Problems& problems, std::vector<std::string>& warnings);

/// The same from the variables that `accelerate launch` sets for its workers (and `lockstep launch`
/// in its words); an empty map where they are not set.
Value accelerate_settings(
    const std::function<std::optional<std::string>(const std::string&)>& environment,
    Problems& problems,
    std::vector<std::string>& warnings);

/// `accelerator_config`: nothing in it is mapped; split_batches=true is a problem.
void check_accelerator_config(
    const Value& config, Problems& problems, std::vector<std::string>& warnings);

/// A map that may be given as a text of JSON, or as the name of a file. Null stays null.
Value map_or_file(const Value& value, const std::string& key, Problems& problems);

}  // namespace lockstep::config
