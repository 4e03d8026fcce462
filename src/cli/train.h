#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// `lockstep train`. Starts the ranks unless a launcher has started them.
int run_train(std::vector<std::string> arguments);
/// `lockstep unlearn`. Same as `lockstep train` with task.type=unlearning.
int run_unlearn(std::vector<std::string> arguments);

}  // namespace lockstep::cli
