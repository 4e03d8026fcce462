// `lockstep bench`: compares ways to train the same model on this machine.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs the command with the arguments after `bench`. Returns the exit code.
int run_bench(std::vector<std::string> arguments);

}  // namespace lockstep::cli
