// GLM (GLM Team, "ChatGLM", 2024) and GLM-4 (2025), which adds a norm after each sublayer. Rotary
// positions apply to adjacent pairs in the first half of each head.
#include "base/format.h"
#include "model/config_reader.h"
#include "model/family.h"
#include "model/layer_list.h"
#include "model/parse_rope.h"

namespace lockstep::model {
namespace {

void glm_block(LayerList& list, int64_t block) {
  const ModelConfig& config = list.config();
  const auto place = [&](const char* module) {
    return fmt::format("model.layers.{}.{}", block, module);
  };
  const auto linear = [&](const char* role, const char* module, Extent out, Extent in, bool bias) {
    list.linear(role, place(module), out, in, LayerList::Bias{bias});
  };
  const bool is_glm4 = config.family == Family::kGlm4;
  list.rms_norm("attention_norm", place("input_layernorm"), list.hidden());
  linear("query", "self_attn.q_proj", list.queries(), list.hidden(), config.qkv_bias);
  linear("key", "self_attn.k_proj", list.key_values(), list.hidden(), config.qkv_bias);
  linear("value", "self_attn.v_proj", list.key_values(), list.hidden(), config.qkv_bias);
  linear("attention_out", "self_attn.o_proj", list.hidden(), list.queries(), false);
  if (is_glm4) {
    list.rms_norm("attention_out_norm", place("post_self_attn_layernorm"), list.hidden());
  }
  list.rms_norm("mlp_norm", place("post_attention_layernorm"), list.hidden());
  linear("mlp_gate_up", "mlp.gate_up_proj", list.gated_width(), list.hidden(), false);
  linear("mlp_down", "mlp.down_proj", list.hidden(), list.width(), false);
  if (is_glm4) {
    list.rms_norm("mlp_out_norm", place("post_mlp_layernorm"), list.hidden());
  }
}

void parse_glm(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = reader.boolean("attention_bias", true);
  if (reader.boolean("mlp_bias", false)) {
    reader.problem(
        "mlp_bias", fmt::format("true is not supported by {}", family_name(config.family)));
  }
}

void parse_glm_rotary(ConfigReader& reader, ModelConfig& config) {
  config.rope = parse_rope(reader, config, {.partial_rotary_factor = 0.5});
  config.rope.in_pairs = true;
}

}  // namespace

FamilyKeys glm_family() {
  FamilyKeys keys = llama_family();
  keys.family = Family::kGlm;
  keys.name = "glm";
  keys.architecture = "GlmForCausalLM";
  keys.default_vocab_size = 151552;
  keys.default_layers = 40;
  keys.default_kv_heads = 2;
  keys.default_head_dim = 128;
  keys.default_intermediate_size = 13696;
  keys.default_max_positions = 131072;
  keys.default_norm_eps = 1.5625e-7;
  keys.default_bos = -1;
  keys.default_eos = -1;
  keys.default_pad = 151329;
  keys.further_eos = {151329, 151336, 151338};
  keys.describe_block = glm_block;
  keys.parse_options = parse_glm;
  keys.parse_rotary = parse_glm_rotary;
  return keys;
}

FamilyKeys glm4_family() {
  FamilyKeys keys = glm_family();
  keys.family = Family::kGlm4;
  keys.name = "glm4";
  keys.architecture = "Glm4ForCausalLM";
  return keys;
}

}  // namespace lockstep::model
