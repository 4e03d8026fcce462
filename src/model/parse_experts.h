// Mixture-of-experts options of config.json.
#pragma once

#include <cstdint>

#include "model/config_reader.h"
#include "model/model_config.h"

namespace lockstep::model {

inline constexpr int64_t kMostExpertWidth = int64_t{1} << 22;

/// Family-specific options of a mixture: defaults and available keys.
struct MixtureForm {
  int64_t count, per_token;
  int64_t width = 0;  // default of moe_intermediate_size; 0: intermediate_size
  double balance_loss = 0.001;
  const char *count_key = "num_experts", *other_count_key = "num_local_experts";
  bool may_be_dense = false;       // some or all layers may be dense
  bool always_normalizes = false;  // otherwise: norm_topk_prob
  bool normalizes = false;         // default of norm_topk_prob
};

/// Parses the experts and their routing options. Sizes must already be parsed. If the model has no
/// experts (a dense model under the mixture's name), config.experts keeps its defaults.
void parse_mixture(ConfigReader& reader, ModelConfig& config, const MixtureForm& form);
/// Parses attention_bias, which applies to all four attention projections.
void parse_attention_bias(ConfigReader& reader, ModelConfig& config, bool fallback = false);

}  // namespace lockstep::model
