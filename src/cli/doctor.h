// `lockstep doctor`: a table of what may hurt a job.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Returns 0, or 3 where something is broken (docs/launch.md).
int run_doctor(std::vector<std::string> arguments);

}  // namespace lockstep::cli
