// Windows by layer, from a config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config_reader.h"
#include "model/model_config.h"

namespace lockstep::model {

/// layer_types: one "full_attention" or "sliding_attention" a layer; empty where it is missing or
/// wrong, which is told.
std::vector<std::string> parse_layer_types(ConfigReader& reader, const ModelConfig& config);

/// Of a family whose layers slide or see all as layer_types says; where it is missing, every
/// `full_every`th sees all and the others slide. Their window is `sliding_window`, or
/// `default_window` where that is missing.
void parse_windows_by_type(
    ConfigReader& reader, ModelConfig& config, int64_t default_window, int64_t full_every);

}  // namespace lockstep::model
