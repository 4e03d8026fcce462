// `lockstep calibrate` (docs/plan.md).
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs the command. `arguments` are those after the command's name. Returns the exit code. Throws
/// lockstep::Error.
int run_calibrate(std::vector<std::string> arguments);

}  // namespace lockstep::cli
