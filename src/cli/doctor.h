// `lockstep doctor`: prints a table of problems that may affect a job.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Returns 0, or 3 if a check found something broken (docs/launch.md).
int run_doctor(std::vector<std::string> arguments);

}  // namespace lockstep::cli
