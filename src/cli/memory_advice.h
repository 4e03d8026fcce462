// What a user who ran out of memory may change.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "config/core/config.h"

namespace lockstep::cli {

/// The error with the changes of the configuration that would save memory and cost the least time,
/// three at most, and what the estimate says that each saves a rank.
Error with_cheapest_changes(const Error& error, const config::Config& config, int64_t ranks);

}  // namespace lockstep::cli
