// `lockstep monitor`: the page of runs, and what each rank of a run does now.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// The words after the command. Serves until SIGINT or SIGTERM. Returns the exit code; throws
/// Error.
int run_monitor(std::vector<std::string> arguments);

}  // namespace lockstep::start
