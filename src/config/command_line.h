// Command-line arguments after the command name: configuration file, overrides in order, and the
// command's own flags.
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
  /// Set by -c FILE, --config FILE, an argument that ends in .yaml, .yml or .json, or --config-path
  /// with --config-name.
  std::filesystem::path file;
  /// --config-dir: additional folders with config groups.
  std::vector<std::filesystem::path> folders;
  /// --config_file: an Accelerate configuration file.
  std::filesystem::path accelerate_file;
  /// Overrides in command-line order. Configuration flags are converted to overrides.
  std::vector<Override> overrides;
  std::map<std::string, std::vector<std::string>> flags;
  bool help = false;
  std::string help_topic;  // section or key after --help
  /// --allow-unknown-config: unknown keys are ignored with a warning.
  bool allow_unknown = false;
};

/// Reads the command line. Words of a flag are separated by - or _, and its value follows "=" or is
/// the next argument. Bool flags follow HfArgumentParser: --bf16, --bf16 false, --no_bf16. An
/// unknown argument is a problem that suggests the nearest flag.
CommandLine read_command_line(
    const std::vector<std::string>& arguments, const ResolveOptions& options, Problems& problems);

/// Returns the canonical name of a flag: words separated by -, without leading dashes.
std::string flag_name(std::string name);

}  // namespace lockstep::config
