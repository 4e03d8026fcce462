// Gemma (Gemma Team, 2024), Gemma 2 (2024) and the text model of Gemma 3 (2025). RMS norms multiply
// by 1 + weight. Gemma 2 and 3 have a norm before and after each sublayer.
#include <cmath>

#include "base/format.h"
#include "model/config_reader.h"
#include "model/family.h"
#include "model/layer_list.h"
#include "model/parse_rope.h"
#include "model/parse_windows.h"

namespace lockstep::model {
namespace {

constexpr double kMostCap = 1e6;

void gemma_norm(LayerList& list, const char* role, const std::string& prefix, Extent over) {
  list.rms_norm(role, prefix, over, LayerKind::kRmsNormAroundOne);
}

void gemma_embedding(LayerList& list) {
  list.tokens("model.embed_tokens");
}

void gemma_block(LayerList& list, int64_t block) {
  const ModelConfig& config = list.config();
  const auto place = [&](const char* module) {
    return fmt::format("model.layers.{}.{}", block, module);
  };
  const auto linear = [&](const char* role, const char* module, Extent out, Extent in, bool bias) {
    list.linear(role, place(module), out, in, LayerList::Bias{bias});
  };
  const bool is_first = config.family == Family::kGemma, has_bias = config.qkv_bias;
  gemma_norm(list, "attention_norm", place("input_layernorm"), list.hidden());
  linear("query", "self_attn.q_proj", list.queries(), list.hidden(), has_bias);
  linear("key", "self_attn.k_proj", list.key_values(), list.hidden(), has_bias);
  linear("value", "self_attn.v_proj", list.key_values(), list.hidden(), has_bias);
  if (config.head_norms) {
    gemma_norm(list, "query_norm", place("self_attn.q_norm"), list.head_dim());
    gemma_norm(list, "key_norm", place("self_attn.k_norm"), list.head_dim());
  }
  linear("attention_out", "self_attn.o_proj", list.hidden(), list.queries(), has_bias);
  if (is_first) {
    gemma_norm(list, "mlp_norm", place("post_attention_layernorm"), list.hidden());
  } else {
    gemma_norm(list, "attention_out_norm", place("post_attention_layernorm"), list.hidden());
    gemma_norm(list, "mlp_norm", place("pre_feedforward_layernorm"), list.hidden());
  }
  linear("mlp_gate", "mlp.gate_proj", list.width(), list.hidden(), false);
  linear("mlp_up", "mlp.up_proj", list.width(), list.hidden(), false);
  linear("mlp_down", "mlp.down_proj", list.hidden(), list.width(), false);
  if (!is_first) {
    gemma_norm(list, "mlp_out_norm", place("post_feedforward_layernorm"), list.hidden());
  }
}

void gemma_head(LayerList& list) {
  gemma_norm(list, "final_norm", "model.norm", list.hidden());
  list.head("lm_head");
}

/// Parses a tanh soft cap. A missing key selects `fallback`; null disables the cap.
double parse_cap(ConfigReader& reader, const char* key, double fallback) {
  return reader.object().contains(key) ? reader.optional_number(key, 1e-3, kMostCap).value_or(0)
                                       : fallback;
}

void parse_common(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = config.attention_out_bias = reader.boolean("attention_bias", false);
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  if (reader.boolean("mlp_bias", false)) {
    reader.problem(
        "mlp_bias", fmt::format("true is not supported by {}", family_name(config.family)));
  }
}

void parse_gemma(ConfigReader& reader, ModelConfig& config) {
  parse_common(reader, config);
  // Older configs use "gelu" for the tanh approximation, as does transformers.
  if (config.activation == Activation::kGelu) {
    config.activation = Activation::kGeluTanh;
  }
}

void parse_gemma2(ConfigReader& reader, ModelConfig& config) {
  parse_common(reader, config);
  config.query_scalar = reader.number("query_pre_attn_scalar", 256, 1e-3, kMostCap);
  config.score_cap = parse_cap(reader, "attn_logit_softcapping", 50);
  config.logit_cap = parse_cap(reader, "final_logit_softcapping", 30);
}

void parse_gemma3(ConfigReader& reader, ModelConfig& config) {
  parse_common(reader, config);
  config.head_norms = true;
  config.query_scalar = reader.number("query_pre_attn_scalar", 256, 1e-3, kMostCap);
  config.logit_cap = parse_cap(reader, "final_logit_softcapping", 0);
  if (reader.has("attn_logit_softcapping")) {
    reader.problem(
        "attn_logit_softcapping",
        "is not supported by gemma3_text, and transformers ignores it: set it to null");
  }
}

void parse_gemma2_windows(ConfigReader& reader, ModelConfig& config) {
  parse_windows_by_type(reader, config, 4096, 2);
}

void parse_gemma3_windows(ConfigReader& reader, ModelConfig& config) {
  const int64_t pattern = reader.integer("sliding_window_pattern", 6, 1, int64_t{1} << 12);
  parse_windows_by_type(reader, config, 4096, pattern);
}

void parse_gemma3_rotary(ConfigReader& reader, ModelConfig& config) {
  parse_ropes_by_layer(
      reader, config, {.theta = 1e6}, {.theta = 1e4, .theta_key = "rope_local_base_freq"});
}

}  // namespace

FamilyKeys gemma_family() {
  return {
      .family = Family::kGemma,
      .name = "gemma",
      .architecture = "GemmaForCausalLM",
      .default_vocab_size = 256000,
      .default_hidden_size = 3072,
      .default_layers = 28,
      .default_heads = 16,
      .default_kv_heads = 16,
      .default_head_dim = 256,
      .default_intermediate_size = 24576,
      .default_max_positions = 8192,
      .default_bos = 2,
      .default_eos = 1,
      .default_tie = true,
      .lora_targets = {"q_proj", "v_proj"},
      .describe_embedding = gemma_embedding,
      .describe_block = gemma_block,
      .describe_head = gemma_head,
      .default_pad = 0,
      .default_activation = "gelu_pytorch_tanh",
      .parse_options = parse_gemma,
  };
}

FamilyKeys gemma2_family() {
  FamilyKeys keys = gemma_family();
  keys.family = Family::kGemma2;
  keys.name = "gemma2";
  keys.architecture = "Gemma2ForCausalLM";
  keys.activation = "hidden_activation";
  keys.default_hidden_size = 2304;
  keys.default_layers = 26;
  keys.default_heads = 8;
  keys.default_kv_heads = 4;
  keys.default_intermediate_size = 9216;
  keys.reads = {"query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"};
  keys.parse_options = parse_gemma2;
  keys.parse_windows = parse_gemma2_windows;
  return keys;
}

FamilyKeys gemma3_family() {
  FamilyKeys keys = gemma2_family();
  keys.family = Family::kGemma3;
  keys.name = "gemma3_text";
  keys.architecture = "Gemma3ForCausalLM";
  keys.default_vocab_size = 262208;
  keys.default_max_positions = 131072;
  keys.reads.insert(keys.reads.end(), {"rope_local_base_freq", "sliding_window_pattern"});
  keys.parse_options = parse_gemma3;
  keys.parse_windows = parse_gemma3_windows;
  keys.parse_rotary = parse_gemma3_rotary;
  return keys;
}

}  // namespace lockstep::model
