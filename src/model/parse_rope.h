// Rotary positions from a config.json.
#pragma once

#include <cstdint>

#include "model/config_reader.h"
#include "model/model_config.h"

namespace lockstep::model {

/// What stands for missing keys, and under which names a family has them beside those of
/// rope_parameters and rope_scaling.
struct RopeKeys {
  double theta = 10000;
  double partial_rotary_factor = 1;
  const char* theta_key = "rope_theta";
  const char* partial_key = "partial_rotary_factor";
  int64_t original_max_positions = 0;  // 0: max_positions
  bool renames_longrope = false;       // "su" and "yarn" are old names of longrope
};

/// Reads them, once the sizes of `config` are known; problems go to the reader.
Rope parse_rope(ConfigReader& reader, const ModelConfig& config, const RopeKeys& keys = {});

/// The same where layers with a sliding window have positions of their own: rope_parameters holds
/// an object for full_attention and one for sliding_attention, rope_scaling is of the former.
/// Writes both. `sliding.theta_key` null: only rope_parameters may say what theta is.
void parse_ropes_by_layer(
    ConfigReader& reader, ModelConfig& config, const RopeKeys& full, const RopeKeys& sliding);

}  // namespace lockstep::model
