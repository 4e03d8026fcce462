#include "model/parse_experts.h"

#include <algorithm>

#include "base/format.h"
#include "model/family.h"

namespace lockstep::model {
namespace {

constexpr int64_t kMostExperts = 1 << 14;
constexpr int64_t kMostExpertWidth = int64_t{1} << 22;

/// What stands for missing keys.
struct MixtureDefaults {
  int64_t count, per_token, width;  // width 0: intermediate_size
  double balance_loss;
};

MixtureDefaults defaults_of(const ModelConfig& config) {
  switch (config.family) {
    case Family::kMixtral:
      return {8, 2, config.intermediate_size, 0.001};
    case Family::kQwen3Moe:
      return {128, 8, 768, 0.001};
    case Family::kQwen2Moe:
      return {60, 4, 1408, 0.001};
    case Family::kGptOss:
      return {128, 4, config.intermediate_size, 0.001};
    default:
      return {64, 8, config.intermediate_size, 0.01};
  }
}

/// Whether some layers, or all, may have an MLP instead.
bool may_be_dense(Family family) {
  return family == Family::kQwen3Moe || family == Family::kQwen2Moe;
}

/// transformers reads either name of the number of experts.
int64_t parse_count(ConfigReader& reader, const ModelConfig& config, int64_t fallback) {
  const bool is_local = config.family == Family::kMixtral || config.family == Family::kGptOss;
  const char* own = is_local ? "num_local_experts" : "num_experts";
  const char* other = is_local ? "num_experts" : "num_local_experts";
  const int64_t least = may_be_dense(config.family) ? 0 : 1;
  const auto named = reader.optional_integer(own, least, kMostExperts);
  const auto also = reader.optional_integer(other, least, kMostExperts);
  if (named && also && *named != *also) {
    reader.problem(own, fmt::format("is {}, and {} is {}", *named, other, *also));
  }
  return named ? *named : also.value_or(fallback);
}

/// A block has experts where it is not listed and its number, counted from 1, is a multiple of the
/// step.
std::vector<int64_t> parse_dense_layers(ConfigReader& reader, const ModelConfig& config) {
  const int64_t step = reader.integer("decoder_sparse_step", 1, 1, kMostExperts);
  const auto listed = reader.integers("mlp_only_layers", 0, kMostExperts, kMostExperts);
  std::vector<int64_t> dense;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const bool is_listed = std::find(listed.begin(), listed.end(), layer) != listed.end();
    if (is_listed || (layer + 1) % step != 0) {
      dense.push_back(layer);
    }
  }
  return dense;
}

void parse_attention(ConfigReader& reader, ModelConfig& config) {
  const bool is_gpt_oss = config.family == Family::kGptOss;
  config.head_norms = config.family == Family::kQwen3Moe || config.family == Family::kOlmoe;
  config.attention_sinks = is_gpt_oss;
  if (config.family == Family::kQwen2Moe) {
    config.qkv_bias = reader.boolean("qkv_bias", true);
    return;
  }
  const bool has_biases = reader.boolean("attention_bias", is_gpt_oss);
  if (config.family == Family::kMixtral && has_biases) {
    reader.problem("attention_bias", "true is not supported by mixtral");
  }
  config.qkv_bias = config.attention_out_bias = has_biases;
  if (config.family == Family::kOlmoe) {
    constexpr double kMostLimit = 1e30;
    config.query_key_value_limit = reader.optional_number("clip_qkv", 0, kMostLimit).value_or(0);
    if (reader.has("clip_qkv") && config.query_key_value_limit == 0) {
      reader.problem("clip_qkv", "0 would make every query, key and value zero");
    }
  }
}

/// The softmax of the chosen experts' logits, as gpt-oss has it, is that of all divided by their
/// sum, as Mixtral has it.
bool always_normalizes(Family family) {
  return family == Family::kMixtral || family == Family::kGptOss;
}

void parse_gate(ConfigReader& reader, ModelConfig& config) {
  constexpr double kMost = 1e6;
  config.experts.gate_limit = reader.number("swiglu_limit", 7, 1e-6, kMost);
  config.experts.gate_slope = reader.number("swiglu_alpha", 1.702, -kMost, kMost);
  if (config.activation != Activation::kSilu) {
    reader.problem("hidden_act", "transformers passes over it in gpt_oss: set it to \"silu\"");
  }
}

}  // namespace

void parse_mixture(ConfigReader& reader, ModelConfig& config) {
  parse_attention(reader, config);
  const MixtureDefaults defaults = defaults_of(config);
  Experts& experts = config.experts;
  experts.count = parse_count(reader, config, defaults.count);
  experts.per_token = reader.integer("num_experts_per_tok", defaults.per_token, 1, kMostExperts);
  experts.width = may_be_dense(config.family)
                      ? reader.integer("moe_intermediate_size", defaults.width, 1, kMostExpertWidth)
                      : defaults.width;
  experts.normalizes = always_normalizes(config.family) || reader.boolean("norm_topk_prob", false);
  experts.balance_loss = reader.number("router_aux_loss_coef", defaults.balance_loss, 0, 1e6);
  experts.wants_balance = reader.boolean("output_router_logits", false);
  if (may_be_dense(config.family)) {
    experts.dense_layers = parse_dense_layers(reader, config);
  }
  if (config.family == Family::kQwen2Moe) {
    experts.shared_width =
        reader.integer("shared_expert_intermediate_size", 5632, 1, kMostExpertWidth);
  }
  if (config.family == Family::kGptOss) {
    parse_gate(reader, config);
  }
  if (experts.count > 0 && experts.per_token > experts.count) {
    reader.problem(
        "num_experts_per_tok",
        fmt::format("is {} and there are {} experts", experts.per_token, experts.count));
  }
  if (experts.count == 0 ||
      std::ssize(experts.dense_layers) == static_cast<std::ptrdiff_t>(config.layers)) {
    experts = {};  // a dense model under the mixture's name
  }
  if (reader.number("router_jitter_noise", 0, -1e6, 1e6) != 0) {
    reader.problem(
        "router_jitter_noise",
        "noise of what experts are given in training is not supported (only 0 is)");
  }
}

}  // namespace lockstep::model
