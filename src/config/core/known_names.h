// Names of TrainingArguments, of its version 4 and of its example scripts that are no field of
// ours, each with what becomes of it. A name that users bring is renamed, mapped, accepted with the
// reason why it does nothing, or refused.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

struct KnownName {
  enum class Answer {
    kMapped,    // read elsewhere: deepspeed, fsdp, warmup_ratio
    kNoEffect,  // accepted; a warning unless the value is harmless
    kRefused,   // a problem unless the value is harmless
  };
  std::string_view name;  // of the section training
  Answer answer;
  bool is_switch;  // --name alone is true
  /// Values that ask for nothing, joined by '|'; null always is one.
  std::string_view harmless;
  std::string_view reason;
};

std::span<const KnownName> known_names();
/// nullptr where the name is not in the table.
const KnownName* find_known_name(std::string_view name);

/// The name of today of an older name of `training` ("evaluation_strategy" -> "eval_strategy");
/// else the name itself.
std::string_view current_name(std::string_view name);
/// The key for an argument of transformers' example scripts ("model_name_or_path" -> "model.path");
/// else empty.
std::string_view script_key(std::string_view name);
/// Whether `name` may be written without "training.": a field, an older name, or a known name of
/// it.
bool is_training_name(std::string_view name);

/// Answers every known name that stands in the tree's `training` and takes it out; what is mapped
/// to other keys is put there (where they are not given already). Interpolations must have been
/// resolved.
void answer_known_names(Value& tree, Problems& problems, std::vector<std::string>& warnings);

}  // namespace lockstep::config
