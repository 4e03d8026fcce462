// The keys of config.json that mixtures of experts have.
#pragma once

#include <cstdint>

#include "model/config_reader.h"
#include "model/model_config.h"

namespace lockstep::model {

inline constexpr int64_t kMostExpertWidth = int64_t{1} << 22;

/// What tells a family's mixture from the others': what stands for missing keys, and which there
/// are.
struct MixtureForm {
  int64_t count, per_token;
  int64_t width = 0;  // of moe_intermediate_size; 0: an expert is as wide as intermediate_size
  double balance_loss = 0.001;
  const char *count_key = "num_experts", *other_count_key = "num_local_experts";
  bool may_be_dense = false;       // some layers, or all, may have an MLP instead
  bool always_normalizes = false;  // else norm_topk_prob says so
  bool normalizes = false;         // where that is missing
};

/// Experts, and how tokens choose them. The sizes are known. Where there are none (a dense model
/// under the mixture's name), config.experts is as if nothing had been read.
void parse_mixture(ConfigReader& reader, ModelConfig& config, const MixtureForm& form);
/// attention_bias: of all four linears of attention.
void parse_attention_bias(ConfigReader& reader, ModelConfig& config, bool fallback = false);

}  // namespace lockstep::model
