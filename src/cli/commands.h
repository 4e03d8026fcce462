// The commands of the program.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(std::vector<std::string> arguments);  // returns the exit code, or throws
};

/// In the order in which a newcomer meets them.
std::span<const Command> commands();

/// Runs one of them, whose errors are told, and returns the exit code.
int run_command(const Command& command, const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
