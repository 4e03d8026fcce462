// Keys that the program knows but does not act on yet, or that do nothing beside other values.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/core/config.h"
#include "config/core/problems.h"

namespace lockstep::config {

/// A key, or some values of it, whose mechanism is not built. Setting it is a problem, never
/// silence.
struct NotBuiltYet {
  std::string_view key;
  /// The values that are not built, joined by '|'; empty: all but the default.
  std::string_view values;
  std::string_view remedy;
};

/// The one list of them: a capability that comes takes its lines away.
std::span<const NotBuiltYet> not_built_yet();

/// A problem for each value of `config` that is in the list.
void check_built(const Config& config, const Origins& origins, Problems& problems);
/// Warnings for keys that were given but do nothing beside the other values (parallel.schedule
/// without a pipeline).
void warn_of_idle_keys(
    const Config& config, const Origins& origins, std::vector<std::string>& warnings);

}  // namespace lockstep::config
