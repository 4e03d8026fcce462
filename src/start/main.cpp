// Program that users start. Commands that do not need libtorch (launching, planning, tokenizing,
// help) and configuration errors are handled here, because loading libtorch takes 0.2 s of
// processor time. For all other commands, executes lockstep-core from the same folder.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include "base/begin_process.h"
#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "base/processor.h"
#include "launch/frontends/command.h"
#include "launch/plan/program.h"
#include "launch/record.h"
#include "start/commands.h"

namespace lockstep::start {
namespace {

int become_core(char** words) {
  const std::string core =
      (std::filesystem::path(launch::own_path()).parent_path() / "lockstep-core").string();
  ::execv(core.c_str(), words);
  throw Error(
      ErrorKind::kEnvironment,
      fmt::format("{}: cannot be executed: {}", core, std::strerror(errno)),
      "build it, or copy it to the folder of this program");
}

void print_usage() {
  fmt::print("usage: lockstep COMMAND [-c file.yaml] [key=value | --key value]...\n\n");
  for (const Command& command : commands()) {
    fmt::print("  {:<10} {}\n", command.name, command.summary);
  }
  fmt::print("\nRun `lockstep COMMAND --help` for its options.\n");
}

const Command& command_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) {
      return command;
    }
    names.emplace_back(command.name);
  }
  throw Error(
      ErrorKind::kConfig,
      fmt::format("unknown command '{}'.{}", name, did_you_mean(name, names)),
      fmt::format("one of {}", fmt::join(names, ", ")));
}

int run(char** words, const std::vector<std::string>& all) {
  if (all.size() < 2 || all[1] == "--help" || all[1] == "-h" || all[1] == "help") {
    print_usage();
    return all.size() < 2 ? exit_code(ErrorKind::kConfig) : 0;
  }
  if (all[1] == "--version") {
    fmt::print("lockstep {}\n", LOCKSTEP_VERSION);
    return 0;
  }
  (void)instruction_set();  // report an invalid LOCKSTEP_MAX_CPU_ISA first
  const std::optional<int> code = command_of(all[1]).run({all.begin() + 2, all.end()});
  std::fflush(stdout);
  return code ? *code : become_core(words);
}

}  // namespace
}  // namespace lockstep::start

int main(int count, char** words) {
  lockstep::begin_process();
  const std::vector<std::string> all(words, words + count);
  const std::vector<std::string> of_link = lockstep::launch::arguments_of_link(all);
  return lockstep::launch::record(count, words, [&](int, char**) {
    return of_link.empty() ? lockstep::start::run(words, all)
                           : lockstep::launch::run_command(of_link);
  });
}
