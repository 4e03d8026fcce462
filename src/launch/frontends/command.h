// `lockstep launch`: starts any program as the ranks of a job. Accepts the options of torchrun,
// accelerate and deepspeed.
#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// Runs `lockstep launch` and returns the job's exit code (docs/launch.md).
int run_command(std::vector<std::string> arguments);

/// Returns the arguments of run_command if the program was started through a link named torchrun,
/// accelerate or deepspeed; otherwise empty. `words` is argv.
std::vector<std::string> arguments_of_link(const std::vector<std::string>& words);

}  // namespace lockstep::launch
