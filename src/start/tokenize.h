// `lockstep tokenize`: converts text to token ids and back.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// Runs the command with the arguments after "tokenize". Returns the exit code.
int run_tokenize(std::vector<std::string> arguments);

}  // namespace lockstep::start
