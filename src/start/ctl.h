// `lockstep ctl`: asks a run that trains on this machine how it is, or to act.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// The words after the command. Returns the exit code; throws Error.
int run_ctl(std::vector<std::string> arguments);

}  // namespace lockstep::start
