// OLMo 2 (OLMo Team, 2024) and OLMo 3 (2025): norms after, not before, each sublayer, and query and
// key norms over all heads together.
#include "base/format.h"
#include "model/config_reader.h"
#include "model/family.h"
#include "model/layer_list.h"
#include "model/parse_rope.h"
#include "model/parse_windows.h"

namespace lockstep::model {
namespace {

void olmo2_block(LayerList& list, int64_t block) {
  const ModelConfig& config = list.config();
  const auto place = [&](const char* module) {
    return fmt::format("model.layers.{}.{}", block, module);
  };
  const auto linear = [&](const char* role, const char* module, Extent out, Extent in, bool bias) {
    list.linear(role, place(module), out, in, LayerList::Bias{bias});
  };
  const auto norm = [&](const char* role, const char* module, Extent over) {
    list.rms_norm(role, place(module), over, LayerKind::kExactRmsNorm);
  };
  const bool has_bias = config.qkv_bias;
  linear("query", "self_attn.q_proj", list.queries(), list.hidden(), has_bias);
  linear("key", "self_attn.k_proj", list.key_values(), list.hidden(), has_bias);
  linear("value", "self_attn.v_proj", list.key_values(), list.hidden(), has_bias);
  norm("query_norm", "self_attn.q_norm", list.queries());
  norm("key_norm", "self_attn.k_norm", list.key_values());
  linear("attention_out", "self_attn.o_proj", list.hidden(), list.queries(), has_bias);
  norm("attention_out_norm", "post_attention_layernorm", list.hidden());
  linear("mlp_gate", "mlp.gate_proj", list.width(), list.hidden(), false);
  linear("mlp_up", "mlp.up_proj", list.width(), list.hidden(), false);
  linear("mlp_down", "mlp.down_proj", list.hidden(), list.width(), false);
  norm("mlp_out_norm", "post_feedforward_layernorm", list.hidden());
}

void olmo2_head(LayerList& list) {
  list.rms_norm("final_norm", "model.norm", list.hidden(), LayerKind::kExactRmsNorm);
  list.head("lm_head");
}

void parse_olmo2(ConfigReader& reader, ModelConfig& config) {
  config.head_norms = true;
  config.qkv_bias = config.attention_out_bias = reader.boolean("attention_bias", false);
  if (reader.boolean("mlp_bias", false)) {
    reader.problem(
        "mlp_bias", fmt::format("true is not supported by {}", family_name(config.family)));
  }
}

void parse_olmo3_windows(ConfigReader& reader, ModelConfig& config) {
  parse_windows_by_type(reader, config, 4096, 4);
}

void parse_olmo3_rotary(ConfigReader& reader, ModelConfig& config) {
  parse_ropes_by_layer(reader, config, {.theta = 5e5}, {.theta = 5e5, .theta_key = nullptr});
}

}  // namespace

FamilyKeys olmo2_family() {
  FamilyKeys keys = llama_family();
  keys.family = Family::kOlmo2;
  keys.name = "olmo2";
  keys.architecture = "Olmo2ForCausalLM";
  keys.default_vocab_size = 50304;
  keys.default_norm_eps = 1e-5;
  keys.default_bos = -1;
  keys.default_eos = 50279;
  keys.default_pad = 1;
  keys.describe_block = olmo2_block;
  keys.describe_head = olmo2_head;
  keys.parse_options = parse_olmo2;
  return keys;
}

FamilyKeys olmo3_family() {
  FamilyKeys keys = olmo2_family();
  keys.family = Family::kOlmo3;
  keys.name = "olmo3";
  keys.architecture = "Olmo3ForCausalLM";
  keys.parse_windows = parse_olmo3_windows;
  keys.parse_rotary = parse_olmo3_rotary;
  return keys;
}

}  // namespace lockstep::model
