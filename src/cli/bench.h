// `lockstep bench`: ways to train the same model, side by side on this machine.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// The words after `bench`. Returns the exit code.
int run_bench(std::vector<std::string> arguments);

}  // namespace lockstep::cli
