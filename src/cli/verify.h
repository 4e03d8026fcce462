// `lockstep verify`: compares a plan with a single rank.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Trains the user's model for two steps, on one rank and with the plan, and prints the differences
/// of losses and gradients. Returns exit code 6 if they exceed the tolerance.
int run_verify(std::vector<std::string> arguments);

}  // namespace lockstep::cli
