// Composition of a Hydra configuration tree (hydra-core 1.3): primary file, defaults list, config
// groups, packages.
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
  /// Primary file. If empty, there are no groups.
  std::filesystem::path file;
  /// Additional folders with config groups, searched after the folder of the file.
  std::vector<std::filesystem::path> folders;
};

struct Composition {
  /// Merged content with unresolved interpolations.
  Value tree = Value::map();
  /// Selected option of each group: "model" -> "small", "db@backup" -> "mysql".
  std::map<std::string, std::string> choices;
  /// Overrides that do not select a group option, in order. The caller applies them to the tree.
  std::vector<Override> overrides;
  /// Ignored entries with reasons, such as Hydra's own groups (hydra/launcher).
  std::vector<std::string> warnings;
};

/// Lowest Origin::order of values from files and from the command line.
inline constexpr int64_t kFileOrder = 1'000, kCommandLineOrder = 1'000'000;

/// Composes the configuration. Throws Error (config) for a missing file or option (and lists the
/// existing ones), a file that includes itself, an override without a match, overrides that precede
/// other items, and malformed packages or entries.
Composition compose(const ComposeOptions& options, std::vector<Override> overrides);

}  // namespace lockstep::config
