// Configuration tree of open-unlearning (locuslab/open-unlearning) as configuration keys:
// model_args, trainer.handler and its method_args, data.forget and data.retain, the metrics of
// eval.tofu.
#pragma once

#include <string>
#include <vector>

#include "config/core/problems.h"
#include "config/core/value.h"
#include "config/hydra/override.h"

namespace lockstep::config {

/// Returns true if a composed tree looks like open-unlearning's.
bool is_open_unlearning(const Value& tree);

/// Applies the overrides of open-unlearning keys to the tree and returns the remaining overrides,
/// which belong to Lockstep keys. An override of an unknown key is a problem.
std::vector<Override> take_overrides(
    Value& tree, std::vector<Override> overrides, Problems& problems);

/// Converts the tree, with interpolations resolved, to a tree of configuration keys. Keys without a
/// meaning in Lockstep are dropped, with a warning if they would change the result. `ours` are the
/// overrides that will be applied later; unlearning.data_dir among them is searched for Hub
/// datasets. Unknown methods, metrics, datasets and parameters, and missing files, are problems
/// with hints.
Value open_unlearning_settings(
    const Value& tree,
    const std::vector<Override>& ours,
    Problems& problems,
    std::vector<std::string>& warnings);

}  // namespace lockstep::config
