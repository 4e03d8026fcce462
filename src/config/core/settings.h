// Settings from a file of another format, as configuration keys.
#pragma once

#include <string>

#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Sets `key` in a tree of settings, with the origin of the source value.
void set_key(
    Value& settings, const std::string& key, const std::string& text, const Origin& origin);

/// Copies each setting to `tree` if the tree has the default value. A conflict with another value
/// is a problem that names both; all conflicts are reported.
void fill(Value& tree, const Value& settings, Problems& problems);

/// Returns true if two scalars are equal: as numbers or as booleans if both are, otherwise as text.
bool same_scalar(const Value& a, const Value& b);

}  // namespace lockstep::config
