// The program's commands and their summaries.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::start {

struct Command {
  std::string_view name;
  std::string_view summary;
  /// Returns the exit code. Returns nullopt if lockstep-core, which has libtorch, must continue.
  /// Throws Error.
  std::optional<int> (*run)(const std::vector<std::string>& arguments);
};

/// Commands in the order of a typical workflow.
std::span<const Command> commands();

}  // namespace lockstep::start
