// The frequencies of rotary positions, by every rope_type of Hugging Face's configs.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// What an angle is made of: angle[position][i] = position * frequencies[i]; cosines and sines are
/// multiplied by attention_factor.
struct RopeFrequencies {
  std::vector<float> frequencies;  // rotary_dim / 2 of them
  float attention_factor = 1;
  bool operator==(const RopeFrequencies&) const = default;
};

/// For a sequence whose largest position is `length` - 1: the dynamic and longrope types depend on
/// it. Sources: RoFormer (Su et al., 2021, eq. 15); position interpolation (Chen et al., 2023);
/// dynamic NTK; YaRN (Peng et al., 2023, section 3); LongRoPE (Ding et al., 2024); Llama 3.1's
/// reference code. Numbers are rounded to float32 where transformers rounds them. `rope` is one of
/// the config's, of a type that is not kNone; without it config.rope.
RopeFrequencies rope_frequencies(const ModelConfig& config, const Rope& rope, int64_t length);
RopeFrequencies rope_frequencies(const ModelConfig& config, int64_t length);
/// Whether rope_frequencies depends on the length.
bool rope_depends_on_length(const ModelConfig& config);

}  // namespace lockstep::model
