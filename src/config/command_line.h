// Arguments after the command: configuration file, overrides and flags in order, and the command's
// own flags.
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
  /// --config-dir: additional folders with config groups.
  std::vector<std::filesystem::path> folders;
  /// --config_file: an Accelerate configuration file.
  std::filesystem::path accelerate_file;
  /// Overrides, including flags as overrides, in order.
  std::vector<Override> overrides;
  std::map<std::string, std::vector<std::string>> flags;
  bool help = false;
  /// --allow-unknown-config: unknown keys are ignored with a warning.
  bool allow_unknown = false;
};

/// Reads the command line. Flags accept - or _ between words, and "=value" or " value". Bool flags
/// are read as by HfArgumentParser: --bf16, --bf16 false, --no_bf16. An unknown argument is a
/// problem that suggests the nearest flag.
CommandLine read_command_line(
    const std::vector<std::string>& arguments, const ResolveOptions& options, Problems& problems);

/// Returns the canonical name of a flag: - between words, without leading dashes.
std::string flag_name(std::string name);

}  // namespace lockstep::config
