// `lockstep schedule`: draws a pipeline schedule, times it and proves it.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// `arguments` without the program's and the command's names. Returns the exit code; throws
/// lockstep::Error.
int run_schedule(std::vector<std::string> arguments);

}  // namespace lockstep::cli
