#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// `lockstep eval --model DIR --data FILE [--json]`: prints loss, perplexity and token accuracy.
int run_eval(std::vector<std::string> arguments);

}  // namespace lockstep::cli
