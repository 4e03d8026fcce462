// The program that computes, lockstep-core: one command a file, dispatched by this table. Users
// start it through `lockstep` (src/start).
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "cli/commands.h"

namespace lockstep::cli {
namespace {

void print_usage() {
  fmt::print("usage: lockstep COMMAND [-c file.yaml] [key=value | --key value]...\n\n");
  for (const Command& command : commands()) {
    fmt::print("  {:<10} {}\n", command.name, command.summary);
  }
  fmt::print("\n`lockstep COMMAND --help` tells the rest.\n");
}

int unknown_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    names.emplace_back(command.name);
  }
  fmt::print(
      stderr,
      "lockstep: there is no command '{}'.{} The commands are: {}\n",
      name,
      did_you_mean(name, names),
      fmt::join(names, ", "));
  return exit_code(ErrorKind::kConfig);
}

int run(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_usage();
    return words.empty() ? exit_code(ErrorKind::kConfig) : 0;
  }
  if (words[0] == "--version") {
    fmt::print("lockstep {}\n", LOCKSTEP_VERSION);
    return 0;
  }
  for (const Command& command : commands()) {
    if (command.name == words[0]) {
      return run_command(command, {words.begin() + 1, words.end()});
    }
  }
  return unknown_command(words[0]);
}

// libtorch takes a tenth of a second to take its operators down, of which nothing is left to be
// written: every file of ours is closed by its scope.
[[noreturn]] void leave(int code) {
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace
}  // namespace lockstep::cli

int main(int count, char** words) {
  const int code = lockstep::cli::run({words + 1, words + count});
  lockstep::cli::leave(code);
}
