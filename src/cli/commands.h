// The commands of lockstep-core: those of the program that need libtorch.
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

/// Runs one of them, whose errors are told, and returns the exit code.
int run_command(const Command& command, const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
