// `lockstep doctor`: a table of problems that may affect a job.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Returns 0, or 3 if something is broken (docs/launch.md).
int run_doctor(std::vector<std::string> arguments);

}  // namespace lockstep::cli
