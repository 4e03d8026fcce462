// Entry point of `lockstep launch`.
#include "launch/frontends/command.h"

#include <filesystem>

#include "base/format.h"
#include "launch/agent/agent.h"
#include "launch/frontends/compat.h"

namespace lockstep::launch {

int run_command(std::vector<std::string> arguments) {
  const LaunchRequest request = read_launch(arguments, current_environment());
  if (!request.answer.empty()) {
    fmt::print("{}", request.answer);
    return 0;
  }
  return run_launch(request);
}

std::vector<std::string> arguments_of_link(const std::vector<std::string>& words) {
  const std::string name = words.empty() ? "" : std::filesystem::path(words[0]).filename().string();
  if (name != "torchrun" && name != "accelerate" && name != "deepspeed") {
    return {};
  }
  std::vector<std::string> arguments{"--compat", name};
  auto first = words.begin() + 1;
  if (name == "accelerate" && first != words.end() && *first == "launch") {
    ++first;
  }
  arguments.insert(arguments.end(), first, words.end());
  return arguments;
}

}  // namespace lockstep::launch
