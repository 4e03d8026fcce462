// Rotary position options of config.json.
#pragma once

#include <cstdint>

#include "model/config_reader.h"
#include "model/model_config.h"

namespace lockstep::model {

/// Defaults of missing keys, and the family's key names in addition to those of rope_parameters and
/// rope_scaling.
struct RopeKeys {
  double theta = 10000;
  double partial_rotary_factor = 1;
  const char* theta_key = "rope_theta";
  const char* partial_key = "partial_rotary_factor";
  int64_t original_max_positions = 0;  // 0: max_positions
  bool renames_longrope = false;       // accepts "su" and "yarn", old names of longrope
};

/// Parses the options; the sizes of `config` must already be known. Records problems in the reader.
Rope parse_rope(ConfigReader& reader, const ModelConfig& config, const RopeKeys& keys = {});

/// The same for models whose sliding-window layers have their own positions: rope_parameters has
/// one object for full_attention and one for sliding_attention; rope_scaling applies to the former.
/// Writes both. `sliding.theta_key` null: theta is only read from rope_parameters.
void parse_ropes_by_layer(
    ConfigReader& reader, ModelConfig& config, const RopeKeys& full, const RopeKeys& sliding);

}  // namespace lockstep::model
