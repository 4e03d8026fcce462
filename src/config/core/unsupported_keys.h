// Keys of ours that the program does not act on yet, or that do nothing beside other values.
#pragma once

#include <string>
#include <vector>

#include "config/core/config.h"
#include "config/core/key_rules.h"
#include "config/core/problems.h"

namespace lockstep::config {

/// The one list of those that are refused: a capability that comes takes its line away. Their names
/// stand with their section, and their text says what to do instead.
KeyRules unsupported_keys();

/// A problem for each value of `config` that is in the list and not harmless.
void check_supported(const Config& config, const Origins& origins, Problems& problems);
/// Warnings for keys that were given but do nothing beside the other values (parallel.schedule
/// without a pipeline).
void warn_of_idle_keys(
    const Config& config, const Origins& origins, std::vector<std::string>& warnings);

}  // namespace lockstep::config
