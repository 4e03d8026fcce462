// `lockstep tokenizer train`: a tokenizer made from text.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// The words after "tokenizer". Returns the exit code.
int run_tokenizer(std::vector<std::string> arguments);

}  // namespace lockstep::cli
