// gpt-oss (OpenAI, 2025): a mixture of experts with biased linear layers, a sliding window in every
// second layer, and a learned attention sink per head. Checkpoints stack the experts of a layer in
// tensors [in, out] with gate and up projections interleaved element by element.
#include <utility>

#include "base/format.h"
#include "model/config_reader.h"
#include "model/family.h"
#include "model/layer_list.h"
#include "model/parse_experts.h"
#include "model/parse_rope.h"
#include "model/parse_windows.h"

namespace lockstep::model {
namespace {

/// Adds an expert's linear layer, stored in the stacked tensors `module` and `module`_bias.
void add_stacked(
    LayerList& list,
    int64_t block,
    int64_t expert,
    const char* role,
    const char* module,
    Extent in,
    Extent out) {
  const std::string experts = fmt::format("model.layers.{}.mlp.experts.", block);
  const int64_t count = list.config().experts.count;
  LayerSpec& layer = list.linear_in_first(
      role, fmt::format("{}{}.{}", experts, expert, module), in, out, LayerList::Bias::kZeros);
  layer.expert = expert;
  layer.parameters[0].stacked = {
      experts + module, {count, in.size, out.size}, expert * in.size * out.size, true};
  layer.parameters[1].stacked = {
      experts + module + "_bias", {count, out.size}, expert * out.size, true};
}

void gpt_oss_block(LayerList& list, int64_t block) {
  const ModelConfig& config = list.config();
  const auto place = [&](const char* module) {
    return fmt::format("model.layers.{}.{}", block, module);
  };
  const auto linear = [&](const char* role, const char* module, Extent out, Extent in) {
    list.linear(role, place(module), out, in, LayerList::Bias{config.qkv_bias});
  };
  const auto norm = [&](const char* role, const char* module) {
    list.rms_norm(role, place(module), list.hidden(), LayerKind::kExactRmsNorm);
  };
  norm("attention_norm", "input_layernorm");
  linear("query", "self_attn.q_proj", list.queries(), list.hidden());
  linear("key", "self_attn.k_proj", list.key_values(), list.hidden());
  linear("value", "self_attn.v_proj", list.key_values(), list.hidden());
  list.attention_sinks(place("self_attn"));
  linear("attention_out", "self_attn.o_proj", list.hidden(), list.queries());
  norm("mlp_norm", "post_attention_layernorm");
  list.router(place("mlp.router"));
  list.router_bias();
  for (int64_t expert = 0; expert < config.experts.count; ++expert) {
    add_stacked(
        list, block, expert, "expert_gate_up", "gate_up_proj", list.hidden(), list.gate_pairs());
    add_stacked(
        list, block, expert, "expert_down", "down_proj", list.expert_width(), list.hidden());
  }
}

void gpt_oss_head(LayerList& list) {
  list.rms_norm("final_norm", "model.norm", list.hidden(), LayerKind::kExactRmsNorm);
  list.head("lm_head");
}

void parse_gpt_oss(ConfigReader& reader, ModelConfig& config) {
  constexpr double kMost = 1e6;
  config.attention_sinks = true;
  parse_attention_bias(reader, config, true);
  config.experts.gate_limit = reader.number("swiglu_limit", 7, 1e-6, kMost);
  config.experts.gate_slope = reader.number("swiglu_alpha", 1.702, -kMost, kMost);
  if (config.activation != Activation::kSilu) {
    reader.problem("hidden_act", "transformers ignores it in gpt_oss: set it to \"silu\"");
  }
  // The softmax over the chosen experts' logits equals the full softmax normalized over the chosen
  // experts.
  parse_mixture(
      reader,
      config,
      {.count = 128,
       .per_token = 4,
       .count_key = "num_local_experts",
       .other_count_key = "num_experts",
       .always_normalizes = true});
}

void parse_gpt_oss_windows(ConfigReader& reader, ModelConfig& config) {
  parse_windows_by_type(reader, config, 128, 2);
}

void parse_gpt_oss_rotary(ConfigReader& reader, ModelConfig& config) {
  config.rope = parse_rope(reader, config, {.theta = 1.5e5});
  if (!reader.has("rope_parameters") && !reader.has("rope_scaling")) {
    config.rope.type = RopeType::kYarn;
    config.rope.factor = 32;
    config.rope.original_max_positions = 4096;
    config.rope.truncate = false;
  }
}

}  // namespace

FamilyKeys gpt_oss_family() {
  FamilyKeys keys = llama_family();
  keys.family = Family::kGptOss;
  keys.name = "gpt_oss";
  keys.architecture = "GptOssForCausalLM";
  keys.default_vocab_size = 201088;
  keys.default_hidden_size = 2880;
  keys.default_layers = 36;
  keys.default_heads = 64;
  keys.default_kv_heads = 8;
  keys.default_head_dim = 64;
  keys.default_intermediate_size = 2880;
  keys.default_max_positions = 131072;
  keys.default_norm_eps = 1e-5;
  keys.default_bos = -1;
  keys.default_eos = -1;
  keys.describe_block = gpt_oss_block;
  keys.describe_head = gpt_oss_head;
  keys.reads = {"num_local_experts", "num_experts"};
  keys.parse_options = parse_gpt_oss;
  keys.parse_windows = parse_gpt_oss_windows;
  keys.parse_rotary = parse_gpt_oss_rotary;
  return keys;
}

}  // namespace lockstep::model
