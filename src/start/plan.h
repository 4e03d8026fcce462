// `lockstep plan` (docs/plan.md).
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// Runs the command. `arguments` excludes the names of program and command. Returns the exit code;
/// throws lockstep::Error.
int run_plan(std::vector<std::string> arguments);

}  // namespace lockstep::start
