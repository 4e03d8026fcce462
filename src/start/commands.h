// The commands of the program.
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
  /// The exit code; nothing where lockstep-core, which has libtorch, is to go on. Throws Error.
  std::optional<int> (*run)(const std::vector<std::string>& arguments);
};

/// In the order in which a newcomer meets them.
std::span<const Command> commands();

}  // namespace lockstep::start
