// Conversion of DeepSpeed JSON files (version 0.19) to configuration keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/core/key_rules.h"
#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Returns the rules, named by path in the file. A section's rule applies to all keys in the
/// section. deepspeed_settings() maps the keys that the rules do not map.
KeyRules deepspeed_rules();

struct DeepspeedContext {
  /// Configuration tree including defaults. Its section training provides values that are "auto"
  /// and batch sizes that are missing.
  const Value& tree;
  /// Number of ranks of the job, if known.
  std::optional<int64_t> ranks;
  /// Report unknown keys as warnings instead of problems.
  bool allow_unknown = false;
  Problems& problems;
  std::vector<std::string>& warnings;
};

/// Reads `training.deepspeed`: a file name, a JSON string, base64-encoded JSON or a map. Returns
/// null for null.
Value read_deepspeed(const Value& value, Problems& problems);

/// Converts the file to settings. Every key is mapped or reported. An unknown key is a problem that
/// suggests the nearest name.
///
/// Completes and checks the batch triple (train_batch_size = micro x accumulation x data-parallel
/// ranks) as DeepSpeed does. "auto" uses the value in `training`.
Value deepspeed_settings(const Value& file, const DeepspeedContext& context);

}  // namespace lockstep::config
