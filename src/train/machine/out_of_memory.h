// Errors of memory, as libtorch and the system have them, as ours.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "base/error.h"

namespace lockstep::train {

/// What is being handled as an Error (out of memory), where it is one. Call it in a catch block.
std::optional<Error> current_out_of_memory();

}  // namespace lockstep::train
