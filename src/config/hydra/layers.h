// Merging of configuration layers into one tree: canonical names, overrides, short names.
#pragma once

#include <set>
#include <string>

#include "config/core/problems.h"
#include "config/core/value.h"
#include "config/hydra/override.h"

namespace lockstep::config {

/// Returns the path of a key: trainer.args.seed, seed -> training.seed; evaluation_strategy ->
/// training.eval_strategy; model_name_or_path -> model.path; other paths are not changed.
Path canonical_path(Path path);

/// Moves trainer.args.* to training.*, and older names of training to the current names, in a
/// composed tree. If a key has two names, the later layer wins; two names in the same layer are a
/// problem.
void rename_older_names(Value& tree, Problems& problems);

/// Applies an override to the tree, which contains the defaults. An unknown key is a problem that
/// suggests the nearest one.
void apply_override(Value& tree, const Override& override, int64_t order, Problems& problems);

/// The same at exactly the given path, without expanding names.
void apply_override_at(
    Value& tree, const Path& path, const Override& override, int64_t order, Problems& problems);

/// Returns the first names of all ${path} interpolations in the tree.
std::set<std::string> referenced_names(const Value& tree);

/// Copies top-level short names ("seed", "model_name_or_path") to their keys, unless a later layer
/// set the key, or interpolations use the name as a variable.
void lift_short_names(Value& tree, Problems& problems);

}  // namespace lockstep::config
