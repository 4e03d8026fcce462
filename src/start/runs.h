// `lockstep runs`, `lockstep compare` and `lockstep sync`: what the folders of runs tell.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// The words after the command. Returns the exit code; throws Error.
int run_runs(std::vector<std::string> arguments);
int run_compare(std::vector<std::string> arguments);
int run_sync(std::vector<std::string> arguments);

}  // namespace lockstep::start
