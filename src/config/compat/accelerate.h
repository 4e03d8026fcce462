// Conversion of Accelerate configuration files, and of accelerator_config in TrainingArguments, to
// configuration keys.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Returns true if a tree looks like a file written by `accelerate config`.
bool is_accelerate(const Value& tree);

/// Converts an Accelerate file to a tree of configuration keys. Every key of the file is mapped,
/// reported as a problem, or reported in a warning that explains why it has no effect on training.
/// Machine settings are among the latter; the launcher reads them.
Value accelerate_settings(
    const Value& file, Problems& problems, std::vector<std::string>& warnings);

/// Overload for the environment variables that `accelerate launch` and `lockstep launch` set for
/// workers. Returns an empty map if none is set.
Value accelerate_settings(
    const std::function<std::optional<std::string>(const std::string&)>& environment,
    Problems& problems,
    std::vector<std::string>& warnings);

/// Checks `accelerator_config`. None of its keys is mapped; split_batches=true is a problem.
void check_accelerator_config(
    const Value& config, Problems& problems, std::vector<std::string>& warnings);

/// Returns the map given by a map, a JSON string or a file name. Returns null for null.
Value map_or_file(const Value& value, const std::string& key, Problems& problems);

}  // namespace lockstep::config
