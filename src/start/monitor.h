// `lockstep monitor`: the monitoring page, and the ranks of a run as text.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// Runs the command with the arguments after its name. Serves until SIGINT or SIGTERM. Returns the
/// exit code; throws Error.
int run_monitor(std::vector<std::string> arguments);

}  // namespace lockstep::start
