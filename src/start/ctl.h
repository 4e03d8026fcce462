// `lockstep ctl`: queries or controls a run on this machine.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// Runs the command. `arguments` are those after the command's name. Returns the exit code. Throws
/// Error.
int run_ctl(std::vector<std::string> arguments);

}  // namespace lockstep::start
