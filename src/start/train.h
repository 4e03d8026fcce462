// The part of `lockstep train` that needs no libtorch: options, help and configuration errors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/resolve.h"

namespace lockstep::start {

/// Returns the options of `lockstep train`.
config::ResolveOptions train_options();

/// Resolves the configuration, so that errors are reported at once, and handles options that only
/// print. Returns the exit code; nullopt: start training. Throws Error (config).
std::optional<int> begin_train(const std::vector<std::string>& arguments);

/// The same for `lockstep unlearn`, which is training with task.type=unlearning.
std::optional<int> begin_unlearn(const std::vector<std::string>& arguments);

/// Logs the warnings.
void warn(const std::vector<std::string>& warnings);

}  // namespace lockstep::start
