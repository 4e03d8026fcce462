// Mixtures of experts with Llama blocks: Mixtral (Jiang et al., 2024), Qwen2 MoE (Yang et al.,
// 2024, with a shared expert), Qwen3 MoE (2025) and OLMoE (Muennighoff et al., 2024). They differ
// in names and options. GLM-4.5 (glm4_moe.cpp) also uses these layers.
#include "model/families/experts.h"

#include <string>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "model/family.h"
#include "model/parse_experts.h"
#include "model/parse_rope.h"
#include "model/parse_windows.h"

namespace lockstep::model {
namespace {

/// Parameter names of a mixture in checkpoints.
struct ExpertNames {
  const char* module;  // module name in the block
  const char *gate, *up, *down;
};

ExpertNames expert_names(Family family) {
  return family == Family::kMixtral ? ExpertNames{"block_sparse_moe", "w1", "w3", "w2"}
                                    : ExpertNames{"mlp", "gate_proj", "up_proj", "down_proj"};
}

/// Adds an expert's matrix, stored at `offset` in the block's stacked tensor.
void add_expert(
    LayerList& list,
    int64_t expert,
    const char* role,
    const std::string& prefix,
    Extent out,
    Extent in,
    PlaceInStack place) {
  LayerSpec& layer = list.linear(role, prefix, out, in, LayerList::Bias::kNone);
  layer.expert = expert;
  layer.parameters.front().stacked = std::move(place);
}

void describe_shared_expert(LayerList& list, const std::string& prefix) {
  const auto add = [&](const char* role, const std::string& name, Extent out, Extent in) {
    list.linear(role, name, out, in, LayerList::Bias::kNone).is_shared = true;
  };
  add("shared_gate", prefix + ".gate_proj", list.shared_width(), list.hidden());
  add("shared_up", prefix + ".up_proj", list.shared_width(), list.hidden());
  add("shared_down", prefix + ".down_proj", list.hidden(), list.shared_width());
  if (list.config().experts.weighs_shared) {
    add("shared_weight", prefix + "_gate", {Dim::kExperts, 1}, list.hidden());
  }
}

void parse_qwen2_moe_windows(ConfigReader& reader, ModelConfig& config) {
  const bool may_slide = reader.boolean("use_sliding_window", false);
  const int64_t last = reader.integer("max_window_layers", 28, 0, int64_t{1} << 31);
  const auto types = parse_layer_types(reader, config);
  const char* key = "sliding_window";
  // transformers writes 0 if there are no windows.
  const int64_t least = may_slide ? 1 : 0;
  const int64_t window = reader.object().contains(key)
                             ? reader.optional_integer(key, least, int64_t{1} << 31).value_or(0)
                             : 4096;
  config.sliding_windows.assign(static_cast<size_t>(config.layers), 0);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto i = static_cast<size_t>(layer);
    const bool slides = types.empty() ? may_slide && layer % 2 == 0 && layer < last
                                      : types[i] == "sliding_attention";
    if (slides && (!may_slide || window == 0)) {
      reader.problem(
          "layer_types", "\"sliding_attention\" requires use_sliding_window and sliding_window");
      return;
    }
    config.sliding_windows[i] = slides ? window : 0;
  }
}

void parse_mixtral(ConfigReader& reader, ModelConfig& config) {
  if (reader.boolean("attention_bias", false)) {
    reader.problem("attention_bias", "true is not supported by mixtral");
  }
  parse_mixture(
      reader,
      config,
      {.count = 8,
       .per_token = 2,
       .count_key = "num_local_experts",
       .other_count_key = "num_experts",
       .always_normalizes = true});
}

void parse_qwen2_moe(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = reader.boolean("qkv_bias", true);
  config.experts.shared_width =
      reader.integer("shared_expert_intermediate_size", 5632, 1, kMostExpertWidth);
  parse_mixture(reader, config, {.count = 60, .per_token = 4, .width = 1408, .may_be_dense = true});
}

void parse_qwen3_moe(ConfigReader& reader, ModelConfig& config) {
  config.head_norms = true;
  parse_attention_bias(reader, config);
  parse_mixture(reader, config, {.count = 128, .per_token = 8, .width = 768, .may_be_dense = true});
}

void parse_olmoe(ConfigReader& reader, ModelConfig& config) {
  constexpr double kMostLimit = 1e30;
  config.head_norms = true;
  parse_attention_bias(reader, config);
  config.query_key_value_limit = reader.optional_number("clip_qkv", 0, kMostLimit).value_or(0);
  if (reader.has("clip_qkv") && config.query_key_value_limit == 0) {
    reader.problem("clip_qkv", "0 would make every query, key and value zero");
  }
  parse_mixture(reader, config, {.count = 64, .per_token = 8, .balance_loss = 0.01});
}

void parse_mixtral_rotary(ConfigReader& reader, ModelConfig& config) {
  config.rope = parse_rope(reader, config, {.theta = 1e6});
}

}  // namespace

void describe_experts(LayerList& list, int64_t block) {
  const ModelConfig& config = list.config();
  const ExpertNames names = expert_names(config.family);
  const std::string layer = fmt::format("model.layers.{}.", block);
  LayerSpec& router = list.router(layer + names.module + ".gate");
  if (config.family == Family::kMixtral) {
    router.parameters.front().aliases.push_back(layer + "mlp.gate.weight");
  }
  if (config.experts.corrects_scores) {
    list.score_correction("e_score_correction_bias");
  }
  const Extent hidden = list.hidden(), width = list.expert_width();
  const int64_t count = config.experts.count, matrix = hidden.size * width.size;
  const std::string stack = layer + "mlp.experts.";
  const auto gate_or_up = [&](int64_t offset) -> PlaceInStack {
    return {stack + "gate_up_proj", {count, 2 * width.size, hidden.size}, offset};
  };
  for (int64_t expert = 0; expert < count; ++expert) {
    const std::string place = fmt::format("{}{}.experts.{}.", layer, names.module, expert);
    add_expert(
        list,
        expert,
        "expert_gate",
        place + names.gate,
        width,
        hidden,
        gate_or_up(2 * expert * matrix));
    add_expert(
        list,
        expert,
        "expert_up",
        place + names.up,
        width,
        hidden,
        gate_or_up((2 * expert + 1) * matrix));
    add_expert(
        list,
        expert,
        "expert_down",
        place + names.down,
        hidden,
        width,
        {stack + "down_proj", {count, hidden.size, width.size}, expert * matrix});
  }
  if (config.experts.shared_width > 0) {
    describe_shared_expert(
        list,
        layer + (config.family == Family::kGlm4Moe ? "mlp.shared_experts" : "mlp.shared_expert"));
  }
}

FamilyKeys mixtral_family() {
  FamilyKeys keys = mistral_family();
  keys.family = Family::kMixtral;
  keys.name = "mixtral";
  keys.architecture = "MixtralForCausalLM";
  keys.default_norm_eps = 1e-5;
  keys.reads = {"num_local_experts", "num_experts"};
  keys.parse_options = parse_mixtral;
  keys.parse_rotary = parse_mixtral_rotary;
  return keys;
}

FamilyKeys qwen3_moe_family() {
  FamilyKeys keys = qwen3_family();
  keys.family = Family::kQwen3Moe;
  keys.name = "qwen3_moe";
  keys.architecture = "Qwen3MoeForCausalLM";
  keys.default_hidden_size = 2048;
  keys.default_layers = 24;
  keys.default_kv_heads = 4;
  keys.default_head_dim = 0;
  keys.default_intermediate_size = 6144;
  keys.reads = {"num_local_experts", "num_experts"};
  keys.parse_options = parse_qwen3_moe;
  return keys;
}

FamilyKeys qwen2_moe_family() {
  FamilyKeys keys = qwen2_family();
  keys.family = Family::kQwen2Moe;
  keys.name = "qwen2_moe";
  keys.architecture = "Qwen2MoeForCausalLM";
  keys.default_hidden_size = 2048;
  keys.default_layers = 24;
  keys.default_heads = 16;
  keys.default_kv_heads = 16;
  keys.default_intermediate_size = 5632;
  keys.reads = {"num_local_experts", "num_experts"};
  keys.parse_options = parse_qwen2_moe;
  keys.parse_windows = parse_qwen2_moe_windows;
  return keys;
}

FamilyKeys olmoe_family() {
  FamilyKeys keys = llama_family();
  keys.family = Family::kOlmoe;
  keys.name = "olmoe";
  keys.architecture = "OlmoeForCausalLM";
  keys.default_vocab_size = 50304;
  keys.default_hidden_size = 2048;
  keys.default_layers = 16;
  keys.default_heads = 16;
  keys.default_intermediate_size = 2048;
  keys.default_max_positions = 4096;
  keys.default_norm_eps = 1e-5;
  keys.default_bos = -1;
  keys.default_eos = 50279;
  keys.reads = {"num_local_experts", "num_experts", "clip_qkv"};
  keys.parse_options = parse_olmoe;
  return keys;
}

}  // namespace lockstep::model
