// Rotary position options of config.json.
#pragma once

#include <cstdint>

#include "model/config_reader.h"
#include "model/model_config.h"

namespace lockstep::model {

/// Defaults of missing keys, and family-specific key names in addition to those in rope_parameters
/// and rope_scaling.
struct RopeKeys {
  double theta = 10000;
  double partial_rotary_factor = 1;
  const char* theta_key = "rope_theta";
  const char* partial_key = "partial_rotary_factor";
  int64_t original_max_positions = 0;  // 0: max_positions
  bool renames_longrope = false;       // accepts "su" and "yarn", older names of longrope
};

/// Parses the options. The sizes of `config` must already be parsed. Records problems in the
/// reader.
Rope parse_rope(ConfigReader& reader, const ModelConfig& config, const RopeKeys& keys = {});

/// Variant for models with separate positions for sliding-window layers: rope_parameters has one
/// object for full_attention and one for sliding_attention, and rope_scaling applies to the former.
/// Sets both in `config`. If `sliding.theta_key` is null, theta is only read from rope_parameters.
void parse_ropes_by_layer(
    ConfigReader& reader, ModelConfig& config, const RopeKeys& full, const RopeKeys& sliding);

}  // namespace lockstep::model
