// Candidates for shell completion, and `lockstep completion`, which prints a shell's script.
//
// The script runs `lockstep COMMAND --complete WORD...`, where the last word is the one at the
// cursor. The command prints candidates from the tables that it also parses with, one per line,
// each followed by a tab and a description. If it prints none, the shell completes file names.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "config/resolve.h"
#include "launch/plan/options.h"

namespace lockstep::start {

/// Option, key or positional argument of a command.
struct Completable {
  enum class Kind { kSwitch, kValue, kKey, kPositional };
  std::string name;  // "--model", "model.path"; empty for a positional argument
  Kind kind = Kind::kSwitch;
  std::string help = {};
  std::vector<std::string> values = {};  // known values; empty: any
};

bool asks_for_completion(const std::vector<std::string>& arguments);

/// Returns the candidates for the last of `words`, the arguments of a command. Keys are offered by
/// section until a section is typed.
std::string complete(
    const std::vector<Completable>& options, const std::vector<std::string>& words);
/// Returns the candidates for the words after kCompleteFlag.
std::string complete(CLI::App& app, const std::vector<std::string>& arguments);
std::string complete(
    std::span<const launch::OptionSpec> table, const std::vector<std::string>& arguments);

/// Prints the help that the resolution requests, or the candidates if the arguments begin with
/// kCompleteFlag. Returns the exit code, 0.
int print_help(
    const config::ResolveOptions& options,
    const config::Resolution& resolution,
    const std::vector<std::string>& arguments);

/// `lockstep completion SHELL`: prints the script. Throws Error (config).
int run_completion(std::vector<std::string> arguments);

}  // namespace lockstep::start
