// FSDP's keys and parallelism_config's as keys of ours: of TrainingArguments, and as sections of
// accelerate's file.
#pragma once

#include <string>
#include <vector>

#include "config/core/key_rules.h"

namespace lockstep::config {

/// FSDP's settings, without "fsdp_" before their names.
KeyRules fsdp_rules();
/// parallelism_config's sizes, with `prefix_of_names` or without.
void read_parallelism(
    const Value& map, const std::string& prefix_of_names, const RuleTarget& target);

/// `fsdp` ("full_shard auto_wrap offload", or true) and `fsdp_config` (a map, or a file's name).
Value fsdp_settings(
    const Value& fsdp,
    const Value& fsdp_config,
    Problems& problems,
    std::vector<std::string>& warnings);

/// `parallelism_config`: {dp_replicate_size, dp_shard_size, tp_size, cp_size, sp_size, ...}.
Value parallelism_settings(
    const Value& config, Problems& problems, std::vector<std::string>& warnings);

}  // namespace lockstep::config
