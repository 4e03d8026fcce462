// Merging of settings from other file formats into a configuration tree.
#pragma once

#include <string>

#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Sets `key` in a tree of settings. The origin is that of the source value.
void set_key(
    Value& settings, const std::string& key, const std::string& text, const Origin& origin);

/// Copies each setting to `tree` if the tree contains the default value. If it contains a different
/// value, reports a problem that names both. Reports all conflicts.
void fill(Value& tree, const Value& settings, Problems& problems);

/// Returns true if two scalars are equal. Numbers and booleans are compared by value, other scalars
/// as text.
bool same_scalar(const Value& a, const Value& b);

}  // namespace lockstep::config
