#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// `lockstep generate --model DIR --prompt TEXT --max-new-tokens N`: prints the prompt and its
/// continuation.
int run_generate(std::vector<std::string> arguments);

}  // namespace lockstep::cli
