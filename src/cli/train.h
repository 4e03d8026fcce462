#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// `lockstep train`. Starts its ranks unless a launcher did.
int run_train(std::vector<std::string> arguments);
/// `lockstep unlearn`: the same with task.type=unlearning.
int run_unlearn(std::vector<std::string> arguments);

}  // namespace lockstep::cli
