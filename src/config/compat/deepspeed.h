// DeepSpeed's JSON configuration (0.19) as keys of ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/core/key_rules.h"
#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// By paths of the file; a section's own path covers what is below it. What a rule does not map,
/// deepspeed_settings() does.
KeyRules deepspeed_rules();

struct DeepspeedContext {
  /// The tree of our keys, defaults in it: "auto" is filled from training, and the batch triple
  /// reads it.
  const Value& tree;
  /// Ranks of the job, where known.
  std::optional<int64_t> ranks;
  /// Unknown keys are warnings.
  bool allow_unknown = false;
  Problems& problems;
  std::vector<std::string>& warnings;
};

/// Reads `training.deepspeed`: a file's name, a text of JSON, base64 (URL-safe) of it, or a map.
/// Null stays null.
Value read_deepspeed(const Value& value, Problems& problems);

/// The settings of the file. Every key has an answer: an unknown one is a problem with the nearest
/// name.
///
/// The batch triple, train_batch_size = micro x accumulation x data-parallel ranks, is completed
/// and checked as DeepSpeed does. "auto" takes what `training` says.
Value deepspeed_settings(const Value& file, const DeepspeedContext& context);

}  // namespace lockstep::config
