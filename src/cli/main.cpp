// The program that computes, lockstep-core: one command a file, dispatched by a table. Users start
// it through `lockstep` (src/start).
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
  fmt::print(stderr, "lockstep-core: start it through `lockstep`, which lies beside it\n");
  return exit_code(ErrorKind::kConfig);
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
  lockstep::begin_process();
  const int code = lockstep::cli::run({words + 1, words + count});
  lockstep::cli::leave(code);
}
