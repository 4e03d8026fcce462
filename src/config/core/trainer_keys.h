// Names of TrainingArguments, of its version 4 and of its example scripts that are no field of
// ours: each is renamed, read as other keys, accepted with the reason why it does nothing, or
// refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/core/key_rules.h"

namespace lockstep::config {

/// Their names stand without "training.".
KeyRules trainer_rules();

/// The name of today of an older name of `training` ("evaluation_strategy" -> "eval_strategy");
/// else the name itself.
std::string_view current_name(std::string_view name);
/// The key for an argument of transformers' example scripts ("model_name_or_path" -> "model.path");
/// else empty.
std::string_view script_key(std::string_view name);
/// Whether `name` may be written without "training.": a field, an older name, or a name that has a
/// rule.
bool is_training_name(std::string_view name);

/// Applies the rules to what the tree's `training` has of their names, and takes it out; of those
/// that other readers map (deepspeed, fsdp) nothing is touched. Interpolations must have been
/// resolved.
void apply_trainer_rules(Value& tree, Problems& problems, std::vector<std::string>& warnings);

}  // namespace lockstep::config
