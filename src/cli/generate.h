#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// lockstep generate --model DIR --prompt TEXT --max-new-tokens N: the prompt and its continuation
/// on stdout.
int run_generate(std::vector<std::string> arguments);

}  // namespace lockstep::cli
