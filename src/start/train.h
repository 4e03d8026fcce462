// The part of `lockstep train` that needs no libtorch: options, help and configuration errors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/resolve.h"

namespace lockstep::start {

/// Returns the options of `lockstep train`.
config::ResolveOptions train_options();
/// Returns those of `lockstep unlearn`, whose help shows other keys.
config::ResolveOptions unlearn_options();

/// Resolves the configuration, so that its errors are reported immediately, and handles options
/// that only print something. Returns the exit code, or nullopt if training must start. Throws
/// Error (config).
std::optional<int> begin_train(const std::vector<std::string>& arguments);

/// Variant for `lockstep unlearn`, which is training with task.type=unlearning.
std::optional<int> begin_unlearn(const std::vector<std::string>& arguments);

/// Logs the warnings.
void warn(const std::vector<std::string>& warnings);

}  // namespace lockstep::start
