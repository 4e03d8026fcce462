// `lockstep selftest`: checks in under a minute that this machine computes correctly.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Returns the exit code. If a check fails, this is the exit code of a numeric error.
int run_selftest(std::vector<std::string> arguments);

}  // namespace lockstep::cli
