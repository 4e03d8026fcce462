// Advice for users whose job ran out of memory.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "config/core/config.h"

namespace lockstep::cli {

/// Returns the error with at most three configuration changes that save memory at the lowest cost
/// in time, and the estimated saving per rank of each.
Error with_cheapest_changes(const Error& error, const config::Config& config, int64_t ranks);

}  // namespace lockstep::cli
