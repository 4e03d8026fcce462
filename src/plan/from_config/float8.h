// 8-bit floating-point settings of a configuration.
#pragma once

#include <optional>

#include "config/core/config.h"
#include "model/float8.h"

namespace lockstep::plan {

/// Returns the settings of precision.fp8, or nullopt if it is none.
std::optional<model::Float8> float8_of(const config::PrecisionSection& section);

}  // namespace lockstep::plan
