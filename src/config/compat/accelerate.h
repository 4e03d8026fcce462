// Accelerate's configuration file, and TrainingArguments' accelerator_config, as configuration
// keys.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Returns true if a tree looks like a file of `accelerate config`.
bool is_accelerate(const Value& tree);

/// Returns the content of the file as a tree of configuration keys. Every key of the file is
/// mapped, or reported with a warning that explains why it has no effect on training (the launcher
/// reads the keys about machines), or reported as a problem.
Value accelerate_settings(
    const Value& file, Problems& problems, std::vector<std::string>& warnings);

/// The same for the environment variables that `accelerate launch` and `lockstep launch` set for
/// workers. Returns an empty map if they are not set.
Value accelerate_settings(
    const std::function<std::optional<std::string>(const std::string&)>& environment,
    Problems& problems,
    std::vector<std::string>& warnings);

/// Checks `accelerator_config`. No key of it is mapped; split_batches=true is a problem.
void check_accelerator_config(
    const Value& config, Problems& problems, std::vector<std::string>& warnings);

/// Returns a map given as a map, a JSON string or a file name. Null stays null.
Value map_or_file(const Value& value, const std::string& key, Problems& problems);

}  // namespace lockstep::config
