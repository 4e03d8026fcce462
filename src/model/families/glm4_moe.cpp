// GLM-4.5 (GLM Team, 2025): Llama blocks with partial rotary positions, optional query and key
// norms, and DeepSeek-V3's mixture of experts (DeepSeek-AI, 2024, section 2.1.2): sigmoid scores,
// selection with a correction bias that is not trained by gradient, group-limited routing, and a
// shared expert. The first layers have a dense MLP. Multi-token prediction layers after the last
// layer are neither read nor written.
#include <algorithm>
#include <numeric>

#include "base/format.h"
#include "model/config_reader.h"
#include "model/family.h"
#include "model/parse_experts.h"
#include "model/parse_rope.h"

namespace lockstep::model {
namespace {

/// Rejects non-default values of keys that transformers ignores for this model.
void check_keys_of_others(ConfigReader& reader) {
  if (reader.integer("decoder_sparse_step", 1, 0, int64_t{1} << 31) != 1) {
    reader.problem(
        "decoder_sparse_step", "transformers ignores it in glm4_moe: use first_k_dense_replace");
  }
  if (!reader.integers("mlp_only_layers", 0, int64_t{1} << 31, size_t{1} << 12).empty()) {
    reader.problem(
        "mlp_only_layers", "transformers ignores it in glm4_moe: use first_k_dense_replace");
  }
  if (reader.text("scoring_func", "sigmoid") != "sigmoid") {
    reader.problem(
        "scoring_func", "transformers ignores it in glm4_moe (only sigmoid is supported)");
  }
}

/// Parses group-limited routing: a token may only use experts in the `groups_per_token` groups with
/// the largest sums of their two best scores.
void parse_groups(ConfigReader& reader, Experts& experts) {
  constexpr int64_t kMostGroups = 1 << 14;
  experts.groups = reader.integer("n_group", 1, 1, kMostGroups);
  experts.groups_per_token = reader.integer("topk_group", 1, 1, kMostGroups);
  const int64_t in_group = experts.count / experts.groups;
  if (in_group * experts.groups != experts.count || in_group < 2) {
    reader.problem(
        "n_group",
        fmt::format(
            "{} does not divide {} experts into equal groups of two or more",
            experts.groups,
            experts.count));
  }
  if (experts.groups_per_token > experts.groups) {
    reader.problem(
        "topk_group",
        fmt::format("is {} and there are {} groups", experts.groups_per_token, experts.groups));
  } else if (experts.per_token > experts.groups_per_token * in_group) {
    reader.problem(
        "topk_group",
        fmt::format(
            "{} groups have {} experts, and num_experts_per_tok is {}",
            experts.groups_per_token,
            experts.groups_per_token * in_group,
            experts.per_token));
  }
}

void parse_glm4_moe(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = reader.boolean("attention_bias", false);
  config.head_norms = reader.boolean("use_qk_norm", false);
  if (reader.boolean("mlp_bias", false)) {
    reader.problem("mlp_bias", "true is not supported by glm4_moe");
  }
  check_keys_of_others(reader);
  Experts& experts = config.experts;
  const int64_t dense = reader.integer("first_k_dense_replace", 1, 0, int64_t{1} << 31);
  experts.dense_layers.resize(static_cast<size_t>(std::min(dense, config.layers)));
  std::iota(experts.dense_layers.begin(), experts.dense_layers.end(), 0);
  parse_mixture(
      reader,
      config,
      {.count = 128,
       .per_token = 8,
       .width = 1408,
       .balance_loss = 1e-4,  // DeepSeek-V3's value; GLM-4.5's config has no such key
       .count_key = "n_routed_experts",
       .other_count_key = "num_local_experts",
       .normalizes = true});
  if (experts.count == 0) {
    return;  // all layers are dense
  }
  // output_router_logits returns the logits but adds no loss term.
  experts.wants_balance = false;
  experts.scores = RouterScores::kSigmoid;
  experts.corrects_scores = true;
  experts.weighs_shared = false;
  experts.weight_factor = reader.number("routed_scaling_factor", 1, 1e-6, 1e6);
  experts.shared_width = experts.width * reader.integer("n_shared_experts", 1, 1, 1 << 10);
  parse_groups(reader, experts);
}

void parse_glm4_moe_rotary(ConfigReader& reader, ModelConfig& config) {
  config.rope = parse_rope(reader, config, {.partial_rotary_factor = 0.5});
}

}  // namespace

FamilyKeys glm4_moe_family() {
  FamilyKeys keys = llama_family();
  keys.family = Family::kGlm4Moe;
  keys.name = "glm4_moe";
  keys.architecture = "Glm4MoeForCausalLM";
  keys.default_vocab_size = 151552;
  keys.default_layers = 46;
  keys.default_heads = 96;
  keys.default_kv_heads = 8;
  keys.default_intermediate_size = 10944;
  keys.default_max_positions = 131072;
  keys.default_norm_eps = 1e-5;
  keys.default_bos = -1;
  keys.default_eos = -1;
  keys.further_layers = "model.layers.";
  keys.reads = {"n_routed_experts", "num_local_experts", "use_qk_norm"};
  keys.parse_options = parse_glm4_moe;
  keys.parse_rotary = parse_glm4_moe_rotary;
  return keys;
}

}  // namespace lockstep::model
