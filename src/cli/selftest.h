// `lockstep selftest`: whether this machine computes what it should, in under a minute.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Returns the exit code: that of a numeric error where a check failed.
int run_selftest(std::vector<std::string> arguments);

}  // namespace lockstep::cli
