// `lockstep launch`: starts any program as the ranks of a job, with the options of torchrun,
// accelerate or deepspeed.
#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// Returns the exit code of the job (docs/launch.md).
int run_command(std::vector<std::string> arguments);

/// Returns the arguments of run_command if the program was started through a link named torchrun,
/// accelerate or deepspeed (`words` is all of argv); otherwise empty.
std::vector<std::string> arguments_of_link(const std::vector<std::string>& words);

}  // namespace lockstep::launch
