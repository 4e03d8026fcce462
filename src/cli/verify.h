// lockstep verify: a plan against one rank.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Trains the user's model for two steps on one rank and under the plan, and prints how far losses
/// and gradients lie apart. Exit code 6 where that is beyond the tolerance.
int run_verify(std::vector<std::string> arguments);

}  // namespace lockstep::cli
