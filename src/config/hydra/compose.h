// A Hydra configuration tree (hydra-core 1.3): a primary file, its defaults list, config groups,
// packages.
//
//   defaults:
//     - group: option              # the file group/option.yaml, its content under the package
//     group
//     - group@package: option      # under another package; _global_ is the root, _here_ the file's
//     own
//     - optional group: option     # nothing where the file is missing
//     - override /group: option    # changes an option that stands elsewhere in the list
//     - group: [one, two]          # several
//     - group: ${other}_small      # from the options of other groups
//     - name                       # another file of the same folder
//     - _self_                     # where this file's own content comes; else last
//
// "# @package NAME" in the first lines of a file gives its package.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "config/core/value.h"
#include "config/hydra/override.h"

namespace lockstep::config {

struct ComposeOptions {
  /// The primary file; empty: there is none, and groups cannot be chosen.
  std::filesystem::path file;
  /// Folders with config groups; the file's own comes first by itself.
  std::vector<std::filesystem::path> folders;
};

struct Composition {
  /// The merged content, without interpolations resolved.
  Value tree = Value::map();
  /// The option taken of each group: "model" -> "small", "db@backup" -> "mysql".
  std::map<std::string, std::string> choices;
  /// The overrides that choose no group, in their order: to be applied to the tree.
  std::vector<Override> overrides;
  /// What was left out, and why (Hydra's own groups, such as hydra/launcher).
  std::vector<std::string> warnings;
};

/// Origin::order of what files say begins here, and of what the command line says there.
inline constexpr int64_t kFileOrder = 1'000, kCommandLineOrder = 1'000'000;

/// Composes. Throws Error(kConfig): a file or an option that is missing (with those there are), a
/// file that includes itself, an override without a match, overrides before other items, a package
/// or an entry that is malformed.
Composition compose(const ComposeOptions& options, std::vector<Override> overrides);

}  // namespace lockstep::config
