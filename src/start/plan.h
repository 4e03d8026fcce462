// `lockstep plan` (docs/plan.md).
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// Runs the command. `arguments` are those after the command's name. Returns the exit code. Throws
/// lockstep::Error.
int run_plan(std::vector<std::string> arguments);

}  // namespace lockstep::start
