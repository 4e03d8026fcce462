// Rotary position frequencies for every rope_type of Hugging Face configs.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// Parameters of the rotation: angle[position][i] = position * frequencies[i]. Cosines and sines
/// are multiplied by attention_factor.
struct RopeFrequencies {
  std::vector<float> frequencies;  // rotary_dim / 2 values
  float attention_factor = 1;
  bool operator==(const RopeFrequencies&) const = default;
};

/// Returns the frequencies for a sequence of `length` positions, on which the dynamic and longrope
/// types depend. Values are rounded to float32 as in transformers. `rope` is one of the config's
/// options and not of type kNone; the overload without it uses config.rope. Sources: RoFormer (Su
/// et al., 2021, eq. 15); position interpolation (Chen et al., 2023); dynamic NTK; YaRN (Peng et
/// al., 2023, section 3); LongRoPE (Ding et al., 2024); Llama 3.1's reference code.
RopeFrequencies rope_frequencies(const ModelConfig& config, const Rope& rope, int64_t length);
RopeFrequencies rope_frequencies(const ModelConfig& config, int64_t length);
/// Returns true if rope_frequencies depends on the length.
bool rope_depends_on_length(const ModelConfig& config);

}  // namespace lockstep::model
