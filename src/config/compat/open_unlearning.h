// Conversion of open-unlearning's configuration tree (locuslab/open-unlearning): model_args,
// trainer.handler with method_args, data.forget, data.retain and the metrics of eval.tofu.
#pragma once

#include <string>
#include <vector>

#include "config/core/problems.h"
#include "config/core/value.h"
#include "config/hydra/override.h"

namespace lockstep::config {

/// Returns true if a composed tree looks like an open-unlearning configuration.
bool is_open_unlearning(const Value& tree);

/// Applies overrides of open-unlearning keys to the tree and returns the others, which are for
/// Lockstep keys. An override of an unknown key is a problem.
std::vector<Override> take_overrides(
    Value& tree, std::vector<Override> overrides, Problems& problems);

/// Converts a tree with resolved interpolations to configuration keys. Keys that have no equivalent
/// are dropped, with a warning if they would change the result. `ours` contains the overrides to be
/// applied later; if it sets unlearning.data_dir, that folder is searched for Hub datasets. Unknown
/// methods, metrics, datasets and parameters, and missing files, are problems with hints.
Value open_unlearning_settings(
    const Value& tree,
    const std::vector<Override>& ours,
    Problems& problems,
    std::vector<std::string>& warnings);

}  // namespace lockstep::config
