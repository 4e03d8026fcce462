// Commands of lockstep-core, which need libtorch.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct Command {
  std::string_view name;
  int (*run)(std::vector<std::string> arguments);  // returns the exit code, or throws
};

std::span<const Command> commands();

/// Runs a command, prints its errors, and returns the exit code.
int run_command(const Command& command, const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
