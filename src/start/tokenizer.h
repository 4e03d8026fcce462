// `lockstep tokenizer train`: a tokenizer made from text.
#pragma once

#include <string>
#include <vector>

namespace lockstep::start {

/// The words after "tokenizer". Returns the exit code.
int run_tokenizer(std::vector<std::string> arguments);

}  // namespace lockstep::start
