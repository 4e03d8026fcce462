// Suggestions for users whose job ran out of memory.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "config/core/config.h"

namespace lockstep::cli {

/// Returns the error with at most three suggested configuration changes. They are the ones that
/// save memory at the lowest cost in time, each with the estimated saving per rank.
Error with_cheapest_changes(const Error& error, const config::Config& config, int64_t ranks);

}  // namespace lockstep::cli
