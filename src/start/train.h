// What of `lockstep train` needs no libtorch: its options, its help and the configuration's errors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/resolve.h"

namespace lockstep::start {

/// The options of `lockstep train`.
config::ResolveOptions train_options();

/// Resolves the configuration, so that what is wrong with it is told at once, and prints what was
/// asked for instead of training. The exit code; nothing: training is to begin. Throws (config).
std::optional<int> begin_train(const std::vector<std::string>& arguments);

/// The same of `lockstep unlearn`, which is training with task.type=unlearning.
std::optional<int> begin_unlearn(const std::vector<std::string>& arguments);

/// Logs them.
void warn(const std::vector<std::string>& warnings);

}  // namespace lockstep::start
