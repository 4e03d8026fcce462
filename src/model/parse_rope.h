// The rotary part of a config.json, in its old and its new style.
#pragma once

#include "model/config_reader.h"
#include "model/model_config.h"

namespace lockstep::model {

/// Reads rope_scaling or rope_parameters, rope_theta and partial_rotary_factor. `config` holds
/// head_dim and max_positions. Problems are added to the reader's.
Rope parse_rope(ConfigReader& reader, const ModelConfig& config);

}  // namespace lockstep::model
