// Settings from a file of another format, as configuration keys.
#pragma once

#include <string>

#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Sets `key` of a tree of settings; the origin is that of the value it was made from.
void set_key(
    Value& settings, const std::string& key, const std::string& text, const Origin& origin);

/// Puts each setting into `tree` where the tree has the default. Where the tree was given another
/// value, that is a problem which names both: every one is told.
void fill(Value& tree, const Value& settings, Problems& problems);

/// Whether two scalars say the same: as numbers where both are, as booleans, else by their texts.
bool same_scalar(const Value& a, const Value& b);

}  // namespace lockstep::config
