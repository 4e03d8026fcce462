// Converts out-of-memory exceptions of libtorch and the system to Error.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "base/error.h"

namespace lockstep::train {

/// Returns the current exception as Error (out of memory). Empty if it is another exception. Must
/// be called in a catch block.
std::optional<Error> current_out_of_memory();

}  // namespace lockstep::train
