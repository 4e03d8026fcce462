// `lockstep tokenizer train`: trains a tokenizer on text.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// Runs the command. `arguments` are those after the command's name. Returns the exit code.
int run_tokenizer(std::vector<std::string> arguments);

}  // namespace lockstep::start
