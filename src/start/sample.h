// `lockstep sample`: writes the sample corpus.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// `arguments` without the program's and the command's names. Returns the exit code; throws
/// lockstep::Error.
int run_sample(std::vector<std::string> arguments);

}  // namespace lockstep::start
