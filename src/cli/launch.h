// `lockstep launch`: starts any program as the ranks of a job, in the words of torchrun, accelerate
// or deepspeed.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Returns the exit code of the job (docs/launch.md).
int run_launch(std::vector<std::string> arguments);

/// The arguments of run_launch where the program was started through a link named torchrun,
/// accelerate or deepspeed
/// (`words` is all of argv); empty where it was not.
std::vector<std::string> arguments_of_link(const std::vector<std::string>& words);

}  // namespace lockstep::cli
