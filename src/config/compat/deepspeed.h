// DeepSpeed's JSON configuration (version 0.19) as configuration keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/core/key_rules.h"
#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Rules by path in the file. The rule of a section applies to all keys below it.
/// deepspeed_settings() maps the keys that rules do not map.
KeyRules deepspeed_rules();

struct DeepspeedContext {
  /// The tree of configuration keys including defaults. "auto" values and missing batch sizes are
  /// read from its section training.
  const Value& tree;
  /// Number of ranks of the job, if known.
  std::optional<int64_t> ranks;
  /// Report unknown keys as warnings instead of problems.
  bool allow_unknown = false;
  Problems& problems;
  std::vector<std::string>& warnings;
};

/// Reads `training.deepspeed`: a file name, a JSON string, JSON in (URL-safe) base64, or a map.
/// Null stays null.
Value read_deepspeed(const Value& value, Problems& problems);

/// Returns the settings of the file. Every key is mapped or reported; an unknown key is a problem
/// that suggests the nearest name.
///
/// The batch triple, train_batch_size = micro x accumulation x data-parallel ranks, is completed
/// and checked as in DeepSpeed. "auto" uses the value in `training`.
Value deepspeed_settings(const Value& file, const DeepspeedContext& context);

}  // namespace lockstep::config
