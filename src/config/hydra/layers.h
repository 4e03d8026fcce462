// The layers of a configuration on one tree: names made canonical, overrides applied, short names
// moved to their section.
#pragma once

#include <set>
#include <string>

#include "config/core/problems.h"
#include "config/core/value.h"
#include "config/hydra/override.h"

namespace lockstep::config {

/// The path that a name stands for: trainer.args.seed, seed -> training.seed; evaluation_strategy
/// -> training.eval_strategy; model_name_or_path -> model.path; anything else as it is.
Path canonical_path(Path path);

/// Moves trainer.args.* to training.*, and older names of training to those of today, within a
/// composed tree. Of a key given under two names the later layer wins; twice in one layer is a
/// problem.
void rename_older_names(Value& tree, Problems& problems);

/// Applies an override to the tree (defaults in it). A key that is not there is a problem, with the
/// nearest one.
void apply_override(Value& tree, const Override& override, int64_t order, Problems& problems);

/// The same at the path that the key says, whatever else it may stand for.
void apply_override_at(
    Value& tree, const Path& path, const Override& override, int64_t order, Problems& problems);

/// The first names of every ${path} that stands in the tree's texts.
std::set<std::string> referenced_names(const Value& tree);

/// Copies top-level names that are short for a key ("seed", "model_name_or_path") to that key,
/// unless it was given by a later layer, or the name is a variable that others refer to.
void lift_short_names(Value& tree, Problems& problems);

}  // namespace lockstep::config
