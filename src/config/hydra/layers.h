// Merging of configuration layers into one tree; expansion of short and older names.
#pragma once

#include <set>
#include <string>

#include "config/core/problems.h"
#include "config/core/value.h"
#include "config/hydra/override.h"

namespace lockstep::config {

/// Returns the canonical path of a key: trainer.args.seed, seed -> training.seed;
/// evaluation_strategy -> training.eval_strategy; checkpoint.replicas ->
/// checkpoint.in_memory_replicas; model_name_or_path -> model.path. Returns other paths unchanged.
Path canonical_path(Path path);

/// In a composed tree, moves trainer.args.* to training.* and renames older names in all sections.
/// If a key is set under two names, the later layer wins. Two names in the same layer are a
/// problem.
void rename_older_names(Value& tree, Problems& problems);

/// Applies an override to the tree, which must contain the defaults. An unknown key is a problem
/// that suggests the nearest one.
void apply_override(Value& tree, const Override& override, int64_t order, Problems& problems);

/// Variant that uses exactly the given path and does not expand names.
void apply_override_at(
    Value& tree, const Path& path, const Override& override, int64_t order, Problems& problems);

/// Returns the first path component of every ${path} interpolation in the tree.
std::set<std::string> referenced_names(const Value& tree);

/// Copies top-level short names ("seed", "model_name_or_path") to their keys, unless a later layer
/// sets the key or an interpolation uses the name as a variable.
void lift_short_names(Value& tree, Problems& problems);

}  // namespace lockstep::config
