#include "cli/launch.h"

#include <filesystem>

#include "base/format.h"
#include "launch/agent.h"
#include "launch/compat.h"

namespace lockstep::cli {

int run_launch(std::vector<std::string> arguments) {
  const launch::Environment environment = launch::current_environment();
  const launch::LaunchRequest request = launch::read_launch(arguments, environment);
  if (!request.answer.empty()) {
    fmt::print("{}", request.answer);
    return 0;
  }
  return launch::run_launch(request);
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

}  // namespace lockstep::cli
