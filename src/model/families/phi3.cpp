// Phi-3 (Abdin et al., 2024) and Phi-4: Llama blocks with packed query-key-value and packed gate-up
// projections.
#include "base/format.h"
#include "model/config_reader.h"
#include "model/family.h"
#include "model/layer_list.h"
#include "model/parse_rope.h"

namespace lockstep::model {
namespace {

void phi3_block(LayerList& list, int64_t block) {
  const auto place = [&](const char* module) {
    return fmt::format("model.layers.{}.{}", block, module);
  };
  const auto linear = [&](const char* role, const char* module, Extent out, Extent in) {
    list.linear(role, place(module), out, in, LayerList::Bias::kNone);
  };
  list.rms_norm("attention_norm", place("input_layernorm"), list.hidden());
  linear("query_key_value", "self_attn.qkv_proj", list.packed_heads(), list.hidden());
  linear("attention_out", "self_attn.o_proj", list.hidden(), list.queries());
  list.rms_norm("mlp_norm", place("post_attention_layernorm"), list.hidden());
  linear("mlp_gate_up", "mlp.gate_up_proj", list.gated_width(), list.hidden());
  linear("mlp_down", "mlp.down_proj", list.hidden(), list.width());
}

void parse_phi3(ConfigReader& reader, ModelConfig& config) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (reader.boolean(key, false)) {
      reader.problem(key, "true is not supported by phi3");
    }
  }
  if (reader.number("embd_pdrop", 0, 0, 1) > 0) {
    reader.problem("embd_pdrop", "transformers ignores it: set it to 0");
  }
  config.qkv_bias = config.attention_out_bias = config.mlp_bias = false;
}

void parse_phi3_windows(ConfigReader& reader, ModelConfig& config) {
  const int64_t window = reader.optional_integer("sliding_window", 1, int64_t{1} << 31).value_or(0);
  config.sliding_windows.assign(static_cast<size_t>(config.layers), window);
}

void parse_phi3_rotary(ConfigReader& reader, ModelConfig& config) {
  config.rope =
      parse_rope(reader, config, {.original_max_positions = 4096, .renames_longrope = true});
  if (config.rope.type != RopeType::kDefault && config.rope.type != RopeType::kLongRope) {
    reader.problem("rope_type", "phi3 only supports \"default\" and \"longrope\"");
  }
}

}  // namespace

FamilyKeys phi3_family() {
  FamilyKeys keys = llama_family();
  keys.family = Family::kPhi3;
  keys.name = "phi3";
  keys.architecture = "Phi3ForCausalLM";
  keys.default_vocab_size = 32064;
  keys.default_hidden_size = 3072;
  keys.default_intermediate_size = 8192;
  keys.default_max_positions = 4096;
  keys.default_norm_eps = 1e-5;
  keys.default_eos = 32000;
  keys.default_pad = 32000;
  keys.lora_targets = {"qkv_proj"};
  keys.describe_block = phi3_block;
  keys.residual_dropout = "resid_pdrop";
  keys.parse_options = parse_phi3;
  keys.parse_windows = parse_phi3_windows;
  keys.parse_rotary = parse_phi3_rotary;
  return keys;
}

}  // namespace lockstep::model
