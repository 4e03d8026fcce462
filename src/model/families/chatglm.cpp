// ChatGLM2, ChatGLM3 and GLM-4 (GLM Team, "ChatGLM", 2024) in their original checkpoint format.
// Same computation as GLM (glm.cpp), with packed query-key-value.
#include <string_view>

#include "base/format.h"
#include "model/config_reader.h"
#include "model/family.h"
#include "model/layer_list.h"

namespace lockstep::model {
namespace {

void chatglm_embedding(LayerList& list) {
  list.tokens("transformer.embedding.word_embeddings", "transformer.output_layer");
}

void chatglm_block(LayerList& list, int64_t block) {
  const auto place = [&](const char* module) {
    return fmt::format("transformer.encoder.layers.{}.{}", block, module);
  };
  const auto linear =
      [&](const char* role, const char* module, Extent out, Extent in, bool has_bias) {
        list.linear(role, place(module), out, in, LayerList::Bias{has_bias});
      };
  const bool has_bias = list.config().qkv_bias;
  list.rms_norm("attention_norm", place("input_layernorm"), list.hidden());
  linear(
      "query_key_value",
      "self_attention.query_key_value",
      list.packed_heads(),
      list.hidden(),
      has_bias);
  linear("attention_out", "self_attention.dense", list.hidden(), list.queries(), false);
  list.rms_norm("mlp_norm", place("post_attention_layernorm"), list.hidden());
  linear("mlp_gate_up", "mlp.dense_h_to_4h", list.gated_width(), list.hidden(), false);
  linear("mlp_down", "mlp.dense_4h_to_h", list.hidden(), list.width(), false);
}

void chatglm_head(LayerList& list) {
  list.rms_norm("final_norm", "transformer.encoder.final_layernorm", list.hidden());
  list.head("transformer.output_layer");
}

/// Checks options that have the same value in every published checkpoint.
void check_switches(ConfigReader& reader) {
  struct Switch {
    const char* key;
    bool stands_for_missing, needed;
  };
  for (const auto& [key, stands_for_missing, needed] :
       {Switch{"rmsnorm", true, true},
        Switch{"post_layer_norm", true, true},
        Switch{"original_rope", true, true},
        Switch{"apply_residual_connection_post_layernorm", false, false},
        Switch{"add_bias_linear", false, false},
        Switch{"interleaved_qkv", false, false}}) {
    if (reader.boolean(key, stands_for_missing) != needed) {
      reader.problem(key, fmt::format("chatglm only supports {}", needed));
    }
  }
  for (const char* key : {"pre_seq_len", "quantization_bit"}) {
    if (reader.optional_integer(key, 0, int64_t{1} << 31).value_or(0) != 0) {
      reader.problem(key, "is not supported (only null or 0)");
    }
  }
}

void parse_chatglm(ConfigReader& reader, ModelConfig& config) {
  check_switches(reader);
  config.qkv_bias = reader.boolean("add_qkv_bias", false);
  if (!reader.boolean("multi_query_attention", false)) {
    config.kv_heads = config.heads;
  }
}

void parse_chatglm_rotary(ConfigReader& reader, ModelConfig& config) {
  const double ratio = reader.number("rope_ratio", 1, 1e-6, 1e9);
  // ChatGLM2's long-context model divides positions by the ratio. Only its name distinguishes it
  // from other models.
  if (ratio != 1 && reader.text("_name_or_path", "").find("chatglm2") != std::string::npos) {
    reader.problem("rope_ratio", "is not supported for chatglm2: convert the folder to glm");
  }
  config.rope.type = RopeType::kDefault;
  config.rope.theta = 1e4 * ratio;
  config.rope.partial_rotary_factor = 0.5;
  config.rope.in_pairs = true;
  const int64_t turned = config.rotary_dim(config.rope);
  if (turned < 2 || turned % 2 != 0) {
    reader.problem(
        "kv_channels", fmt::format("is {}; it must be a multiple of 4", config.head_dim));
  }
}

}  // namespace

FamilyKeys chatglm_family() {
  FamilyKeys keys = llama_family();
  keys.family = Family::kChatGlm;
  keys.name = "chatglm";
  keys.architecture = "ChatGLMForConditionalGeneration";
  keys.vocab_size = "padded_vocab_size";
  keys.layers = "num_layers";
  keys.kv_heads = "multi_query_group_num";
  keys.head_dim = "kv_channels";
  keys.max_positions = "seq_length";
  keys.intermediate_size = "ffn_hidden_size";
  keys.norm_eps = "layernorm_epsilon";
  keys.residual_dropout = "hidden_dropout";
  keys.default_vocab_size = 65024;
  keys.default_layers = 28;
  keys.default_kv_heads = 1;
  keys.default_head_dim = 128;
  keys.default_intermediate_size = 13696;
  keys.default_max_positions = 2048;
  keys.default_norm_eps = 1e-5;
  keys.default_bos = -1;
  keys.default_eos = -1;
  keys.lora_targets = {"query_key_value"};
  keys.pads_embedding = false;
  keys.describe_embedding = chatglm_embedding;
  keys.describe_block = chatglm_block;
  keys.describe_head = chatglm_head;
  keys.parse_options = parse_chatglm;
  keys.parse_rotary = parse_chatglm_rotary;
  return keys;
}

}  // namespace lockstep::model
