// `lockstep ctl`: queries or controls a run on this machine.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// Runs the command with the arguments after its name. Returns the exit code; throws Error.
int run_ctl(std::vector<std::string> arguments);

}  // namespace lockstep::start
