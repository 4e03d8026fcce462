// `lockstep tokenize`: converts text to token ids and back.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// Runs the command. `arguments` are those after the command's name. Returns the exit code.
int run_tokenize(std::vector<std::string> arguments);

}  // namespace lockstep::start
