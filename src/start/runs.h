// `lockstep runs`, `lockstep compare` and `lockstep sync`: commands on the folders of runs.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// Run the commands with the arguments after their names. Return the exit code; throw Error.
int run_runs(std::vector<std::string> arguments);
int run_compare(std::vector<std::string> arguments);
int run_sync(std::vector<std::string> arguments);

}  // namespace lockstep::start
