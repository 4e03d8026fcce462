// `lockstep monitor`: serves the monitoring page, or prints the ranks of a run.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// Runs the command. `arguments` are those after the command's name. Serves until SIGINT or
/// SIGTERM. Returns the exit code. Throws Error.
int run_monitor(std::vector<std::string> arguments);

}  // namespace lockstep::start
