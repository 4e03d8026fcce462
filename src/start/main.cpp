// The program that users start. It launches jobs itself, without libtorch, whose loading alone
// takes longer than starting a job; for every other command it becomes lockstep-core, which lies
// beside it.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "launch/plan/program.h"
#include "launch/record.h"
#include "launch/surfaces/command.h"

namespace {

namespace launch = lockstep::launch;

int become_core(char** words) {
  const std::string core =
      (std::filesystem::path(launch::own_path()).parent_path() / "lockstep-core").string();
  ::execv(core.c_str(), words);
  fmt::print(
      stderr,
      "lockstep: {} cannot be run: {}\n  try: build it, or copy it beside this program\n",
      core,
      std::strerror(errno));
  return exit_code(lockstep::ErrorKind::kEnvironment);
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> all(words, words + count);
  std::vector<std::string> arguments = launch::arguments_of_link(all);
  if (arguments.empty()) {
    if (count < 2 || all[1] != "launch") {
      return become_core(words);
    }
    arguments.assign(all.begin() + 2, all.end());
  }
  return launch::record(count, words, [&](int, char**) { return launch::run_command(arguments); });
}
