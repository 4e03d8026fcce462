// Conversion of FSDP and parallelism_config keys in TrainingArguments and Accelerate files to
// configuration keys.
#pragma once

#include <string>
#include <vector>

#include "config/core/key_rules.h"

namespace lockstep::config {

/// Returns the rules for FSDP settings. Names have no "fsdp_" prefix.
KeyRules fsdp_rules();
/// Reads the sizes of parallelism_config, with or without `prefix_of_names`.
void read_parallelism(
    const Value& map, const std::string& prefix_of_names, const RuleTarget& target);

/// Reads `fsdp` ("full_shard auto_wrap offload", or true) and `fsdp_config` (a map or a file name).
Value fsdp_settings(
    const Value& fsdp,
    const Value& fsdp_config,
    Problems& problems,
    std::vector<std::string>& warnings);

/// Reads `parallelism_config`: {dp_replicate_size, dp_shard_size, tp_size, cp_size, sp_size, ...}.
Value parallelism_settings(
    const Value& config, Problems& problems, std::vector<std::string>& warnings);

}  // namespace lockstep::config
