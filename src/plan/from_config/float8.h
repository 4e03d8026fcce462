// Matrix products that use 8-bit floats.
#pragma once

#include <optional>

#include "config/core/config.h"
#include "model/float8.h"

namespace lockstep::plan {

/// What the section asks for; nothing where it asks for none.
std::optional<model::Float8> float8_of(const config::PrecisionSection& section);

}  // namespace lockstep::plan
