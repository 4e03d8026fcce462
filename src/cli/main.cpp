// Main function of lockstep-core, the program with libtorch. Users start it through `lockstep`
// (src/start).
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "base/begin_process.h"
#include "base/error.h"
#include "base/format.h"
#include "cli/commands.h"

namespace lockstep::cli {
namespace {

int run(const std::vector<std::string>& words) {
  for (const Command& command : commands()) {
    if (!words.empty() && command.name == words[0]) {
      return run_command(command, {words.begin() + 1, words.end()});
    }
  }
  fmt::print(stderr, "lockstep-core: run `lockstep` instead, which is in the same folder\n");
  return exit_code(ErrorKind::kConfig);
}

// Exits without the destructors of libtorch, which take 0.1 s. All files have been closed by their
// owners.
[[noreturn]] void leave(int code) {
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace
}  // namespace lockstep::cli

int main(int count, char** words) {
  lockstep::begin_process();
  const int code = lockstep::cli::run({words + 1, words + count});
  lockstep::cli::leave(code);
}
