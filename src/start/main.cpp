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
#include "start/completion.h"

namespace lockstep::start {
namespace {

int become_core(const std::vector<std::string>& all) {
  std::vector<char*> words;
  for (const std::string& word : all) {
    words.push_back(const_cast<char*>(word.c_str()));
  }
  words.push_back(nullptr);
  const std::string core =
      (std::filesystem::path(launch::own_path()).parent_path() / "lockstep-core").string();
  ::execv(core.c_str(), words.data());
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
  fmt::print(
      "\nRun `lockstep COMMAND --help` or `lockstep help COMMAND` for its options, and `lockstep "
      "help COMMAND SECTION`\nfor the keys of a section.\n");
}

/// Prints the candidates for the name of a command.
void complete_command(const std::string& word) {
  std::vector<Completable> names;
  for (const Command& command : commands()) {
    names.push_back(
        {"",
         Completable::Kind::kPositional,
         std::string(command.summary),
         {std::string(command.name)}});
  }
  names.push_back({"", Completable::Kind::kPositional, "Show the help of a command", {"help"}});
  fmt::print("{}", complete(names, {word}));
}

/// Returns the words of `lockstep COMMAND --help [SECTION]` for `lockstep help COMMAND [SECTION]`.
std::vector<std::string> without_help(const std::vector<std::string>& all) {
  if (all.size() < 3 || all[1] != "help") {
    return all;
  }
  const std::string complete(config::kCompleteFlag);
  if (all[2] != complete) {
    std::vector<std::string> words{all[0], all[2], "--help"};
    words.insert(words.end(), all.begin() + 3, all.end());
    return words;
  }
  return all.size() < 5 ? std::vector<std::string>{all[0], complete, all.back()}
                        : std::vector<std::string>{all[0], all[3], complete, "--help", all.back()};
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

int run(const std::vector<std::string>& given) {
  const std::vector<std::string> all = without_help(given);
  if (all.size() < 2 || all[1] == "--help" || all[1] == "-h" || all[1] == "help") {
    print_usage();
    return all.size() < 2 ? exit_code(ErrorKind::kConfig) : 0;
  }
  if (all[1] == config::kCompleteFlag) {
    complete_command(all.back());
    return 0;
  }
  if (all[1] == "--version") {
    fmt::print("lockstep {}\n", LOCKSTEP_VERSION);
    return 0;
  }
  (void)instruction_set();  // report an invalid LOCKSTEP_MAX_CPU_ISA first
  const std::optional<int> code = command_of(all[1]).run({all.begin() + 2, all.end()});
  std::fflush(stdout);
  return code ? *code : become_core(all);
}

}  // namespace
}  // namespace lockstep::start

int main(int count, char** words) {
  lockstep::begin_process();
  const std::vector<std::string> all(words, words + count);
  const std::vector<std::string> of_link = lockstep::launch::arguments_of_link(all);
  return lockstep::launch::record(count, words, [&](int, char**) {
    return of_link.empty() ? lockstep::start::run(all) : lockstep::launch::run_command(of_link);
  });
}
