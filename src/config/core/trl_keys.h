// Accepted flags and keys of TRL's SFTConfig, DPOConfig, KTOConfig, RewardConfig, ModelConfig and
// ScriptArguments.
#pragma once

#include <string_view>

#include "config/core/key_rules.h"

namespace lockstep::config {

/// Name and the key with the same values.
struct TrlKey {
  std::string_view name, key;
};
std::span<const TrlKey> trl_keys();
/// Rules for the other names. Unlike the keys, their values are converted, ignored or refused.
KeyRules trl_rules();
/// Returns true if the name is TRL's and not one of TrainingArguments.
bool is_trl_name(std::string_view name);

}  // namespace lockstep::config
