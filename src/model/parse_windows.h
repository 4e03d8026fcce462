// Sliding windows per layer, from config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config_reader.h"
#include "model/model_config.h"

namespace lockstep::model {

/// Parses layer_types: "full_attention" or "sliding_attention" for each layer. Returns an empty
/// vector if the key is missing or invalid; the latter is recorded as a problem.
std::vector<std::string> parse_layer_types(ConfigReader& reader, const ModelConfig& config);

/// Parses windows according to layer_types. If that key is missing, every `full_every`th layer has
/// full attention, and all others have a sliding window. The window size is `sliding_window`,
/// `default_window` by default.
void parse_windows_by_type(
    ConfigReader& reader, ModelConfig& config, int64_t default_window, int64_t full_every);

}  // namespace lockstep::model
