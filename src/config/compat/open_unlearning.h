// The configuration tree of open-unlearning (locuslab/open-unlearning) as keys of ours: model_args,
// trainer.handler and its method_args, data.forget and data.retain, the metrics of eval.tofu.
#pragma once

#include <string>
#include <vector>

#include "config/core/problems.h"
#include "config/core/value.h"
#include "config/hydra/override.h"

namespace lockstep::config {

/// Whether a composed tree has the shape of theirs.
bool is_open_unlearning(const Value& tree);

/// Applies to the tree those overrides that are of its keys, and returns the others, which are of
/// ours. An override of neither is a problem.
std::vector<Override> take_overrides(
    Value& tree, std::vector<Override> overrides, Problems& problems);

/// The tree, whose interpolations are resolved, as a tree of our keys. What has no meaning here is
/// left out, with a warning where it would change something. `ours` are the overrides that are
/// still to come: unlearning.data_dir among them says where data sets of the Hub lie. Problems:
/// methods, metrics, data sets and parameters that are not known, each with the remedy; files that
/// are not there.
Value open_unlearning_settings(
    const Value& tree,
    const std::vector<Override>& ours,
    Problems& problems,
    std::vector<std::string>& warnings);

}  // namespace lockstep::config
