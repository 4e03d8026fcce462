// Configuration keys that are unsupported or have no effect in combination with other keys.
#pragma once

#include <string>
#include <vector>

#include "config/core/config.h"
#include "config/core/key_rules.h"
#include "config/core/problems.h"

namespace lockstep::config {

/// Returns the rules for unsupported keys, by full name. The text is a hint. Remove a rule when its
/// key is implemented.
KeyRules unsupported_keys();

/// Reports a problem for each unsupported value in `config`.
void check_supported(const Config& config, const Origins& origins, Problems& problems);
/// Adds warnings for keys that are set but have no effect, such as parallel.schedule without a
/// pipeline.
void warn_of_idle_keys(
    const Config& config, const Origins& origins, std::vector<std::string>& warnings);

}  // namespace lockstep::config
