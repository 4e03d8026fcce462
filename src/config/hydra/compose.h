// Hydra configuration tree (hydra-core 1.3): primary file, defaults list, config groups, packages.
//
//   defaults:
//     - group: option              # file group/option.yaml, content in the package of the group
//     - group@package: option      # in another package; _global_ is the root, _here_ the file's
//     own
//     - optional group: option     # ignored if the file does not exist
//     - override /group: option    # changes an option set elsewhere in the list
//     - group: [one, two]          # several options
//     - group: ${other}_small      # from the options of other groups
//     - name                       # another file of the same folder
//     - _self_                     # position of this file's own content; default: last
//
// "# @package NAME" in the first lines of a file sets its package.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "config/core/value.h"
#include "config/hydra/override.h"

namespace lockstep::config {

struct ComposeOptions {
  /// Primary file; if empty, there are no groups.
  std::filesystem::path file;
  /// Additional folders with config groups, searched after the folder of the file.
  std::vector<std::filesystem::path> folders;
};

struct Composition {
  /// Merged content with unresolved interpolations.
  Value tree = Value::map();
  /// Selected option of each group: "model" -> "small", "db@backup" -> "mysql".
  std::map<std::string, std::string> choices;
  /// Overrides that select no group option, in order; the caller applies them to the tree.
  std::vector<Override> overrides;
  /// Ignored entries and the reasons (Hydra's own groups, such as hydra/launcher).
  std::vector<std::string> warnings;
};

/// First Origin::order of values from files and from the command line.
inline constexpr int64_t kFileOrder = 1'000, kCommandLineOrder = 1'000'000;

/// Composes the configuration. Throws Error (config) for: a missing file or option (lists those
/// that exist), a file that includes itself, an override without a match, overrides before other
/// items, a malformed package or entry.
Composition compose(const ComposeOptions& options, std::vector<Override> overrides);

}  // namespace lockstep::config
