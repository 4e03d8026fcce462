// `lockstep calibrate` (docs/plan.md).
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs the command. `arguments` excludes the names of program and command. Returns the exit code;
/// throws lockstep::Error.
int run_calibrate(std::vector<std::string> arguments);

}  // namespace lockstep::cli
