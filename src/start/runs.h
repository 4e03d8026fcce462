// `lockstep runs`, `lockstep compare` and `lockstep sync`: commands on the folders of runs.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// Run the commands. `arguments` are those after the command's name. Return the exit code. Throw
/// Error.
int run_runs(std::vector<std::string> arguments);
int run_compare(std::vector<std::string> arguments);
int run_sync(std::vector<std::string> arguments);

}  // namespace lockstep::start
