// `lockstep estimate` (docs/estimate.md).
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// Runs the command. `arguments` are those after the command's name. Returns the exit code. Throws
/// lockstep::Error.
int run_estimate(std::vector<std::string> arguments);

}  // namespace lockstep::start
