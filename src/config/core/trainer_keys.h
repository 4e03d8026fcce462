// Rules for names in TrainingArguments (including version 4) and in example scripts that are not
// configuration fields. Each name is renamed, mapped to other keys, ignored or refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/core/key_rules.h"

namespace lockstep::config {

/// Returns the rules. Names have no "training." prefix.
KeyRules trainer_rules();

/// Returns the current name for an older name of a key in a section ("training",
/// "evaluation_strategy" -> "eval_strategy"); otherwise the name itself.
std::string_view current_name(std::string_view section, std::string_view name);
/// Returns the key for an argument of transformers' example scripts ("model_name_or_path" ->
/// "model.path") or of TRL; otherwise an empty string.
std::string_view script_key(std::string_view name);
/// Returns true if `name` may be written without "training.": a field, an older name, or a name
/// with a rule.
bool is_training_name(std::string_view name);

/// Applies the rules to the keys in the tree's section `training` and removes them. Keys mapped by
/// other readers (deepspeed, fsdp) are left unchanged. Interpolations must be resolved.
void apply_trainer_rules(Value& tree, Problems& problems, std::vector<std::string>& warnings);

}  // namespace lockstep::config
