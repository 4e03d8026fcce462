// The words after the command, sorted: the configuration file, overrides and flags in their order,
// the command's own flags.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "config/core/problems.h"
#include "config/hydra/override.h"
#include "config/resolve.h"

namespace lockstep::config {

struct CommandLine {
  /// -c FILE, --config FILE, a word that ends in .yaml, .yml or .json, or --config-path and
  /// --config-name.
  std::filesystem::path file;
  /// --config-dir: more folders with config groups.
  std::vector<std::filesystem::path> folders;
  /// --config_file: an accelerate file.
  std::filesystem::path accelerate_file;
  /// Overrides, and flags as overrides, in their order.
  std::vector<Override> overrides;
  std::map<std::string, std::vector<std::string>> flags;
  bool help = false;
  /// --allow-unknown-config: unknown keys are warned of and left out.
  bool allow_unknown = false;
};

/// Flags take - or _ between words, "=value" or " value". Booleans are read as HfArgumentParser
/// does: --bf16, --bf16 false,
/// --no_bf16. What is not understood is a problem, with the nearest flag.
CommandLine read_command_line(
    const std::vector<std::string>& arguments, const ResolveOptions& options, Problems& problems);

/// A flag's name as it is kept: - between words, without the leading dashes.
std::string flag_name(std::string name);

}  // namespace lockstep::config
