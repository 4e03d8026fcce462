// `lockstep selftest`: checks in under a minute that this machine computes correctly.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Returns the exit code: that of a numeric error if a check failed.
int run_selftest(std::vector<std::string> arguments);

}  // namespace lockstep::cli
