// Settings for which transformers uses own code instead of tokenizer.json.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::text {

/// Returns the settings of a tokenizer_config.json that contradict its tokenizer.json, as in
/// "do_lower_case is false, but tokenizer.json has lowercase true". For some classes,
/// transformers 5 builds the tokenizer from these settings; Lockstep uses tokenizer.json.
std::vector<std::string> conflicts_of(
    const nlohmann::json& config, const nlohmann::json& tokenizer);

}  // namespace lockstep::text
