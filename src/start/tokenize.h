// `lockstep tokenize`: text in, ids out, and back.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// The words after "tokenize". Returns the exit code.
int run_tokenize(std::vector<std::string> arguments);

}  // namespace lockstep::start
