// Llama (Touvron et al., 2023) and families that differ only in options: Mistral, Qwen2, Qwen3, and
// their mixtures of experts (experts.cpp).
#include "base/format.h"
#include "model/families/experts.h"
#include "model/family.h"
#include "model/layer_list.h"

namespace lockstep::model {
namespace {

void llama_embedding(LayerList& list) {
  list.tokens("model.embed_tokens");
}

void llama_block(LayerList& list, int64_t block) {
  const ModelConfig& config = list.config();
  const auto place = [&](const char* module) {
    return fmt::format("model.layers.{}.{}", block, module);
  };
  const auto linear =
      [&](const char* role, const char* module, Extent out, Extent in, bool has_bias) {
        list.linear(role, place(module), out, in, LayerList::Bias{has_bias});
      };
  list.rms_norm("attention_norm", place("input_layernorm"), list.hidden());
  linear("query", "self_attn.q_proj", list.queries(), list.hidden(), config.qkv_bias);
  linear("key", "self_attn.k_proj", list.key_values(), list.hidden(), config.qkv_bias);
  linear("value", "self_attn.v_proj", list.key_values(), list.hidden(), config.qkv_bias);
  if (config.head_norms) {
    const bool each = config.family != Family::kOlmoe;
    list.rms_norm("query_norm", place("self_attn.q_norm"), each ? list.head_dim() : list.queries());
    list.rms_norm(
        "key_norm", place("self_attn.k_norm"), each ? list.head_dim() : list.key_values());
  }
  linear(
      "attention_out",
      "self_attn.o_proj",
      list.hidden(),
      list.queries(),
      config.attention_out_bias);
  list.rms_norm("mlp_norm", place("post_attention_layernorm"), list.hidden());
  if (config.has_experts(block)) {
    describe_experts(list, block);
    return;
  }
  linear("mlp_gate", "mlp.gate_proj", list.width(), list.hidden(), config.mlp_bias);
  linear("mlp_up", "mlp.up_proj", list.width(), list.hidden(), config.mlp_bias);
  linear("mlp_down", "mlp.down_proj", list.hidden(), list.width(), config.mlp_bias);
}

void llama_head(LayerList& list) {
  list.rms_norm("final_norm", "model.norm", list.hidden());
  list.head("lm_head");
}

}  // namespace

FamilyKeys llama_family() {
  return {
      .family = Family::kLlama,
      .name = "llama",
      .architecture = "LlamaForCausalLM",
      .default_vocab_size = 32000,
      .default_hidden_size = 4096,
      .default_layers = 32,
      .default_heads = 32,
      .default_intermediate_size = 11008,
      .default_max_positions = 2048,
      .default_bos = 1,
      .default_eos = 2,
      .lora_targets = {"q_proj", "v_proj"},
      .describe_embedding = llama_embedding,
      .describe_block = llama_block,
      .describe_head = llama_head,
  };
}

FamilyKeys mistral_family() {
  FamilyKeys keys = llama_family();
  keys.family = Family::kMistral;
  keys.name = "mistral";
  keys.architecture = "MistralForCausalLM";
  keys.default_kv_heads = 8;
  keys.default_intermediate_size = 14336;
  keys.default_max_positions = 131072;
  return keys;
}

FamilyKeys qwen2_family() {
  FamilyKeys keys = llama_family();
  keys.family = Family::kQwen2;
  keys.name = "qwen2";
  keys.architecture = "Qwen2ForCausalLM";
  keys.default_vocab_size = 151936;
  keys.default_kv_heads = 32;
  keys.default_intermediate_size = 22016;
  keys.default_max_positions = 32768;
  keys.default_bos = -1;
  keys.default_eos = -1;
  return keys;
}

FamilyKeys qwen3_family() {
  FamilyKeys keys = qwen2_family();
  keys.family = Family::kQwen3;
  keys.name = "qwen3";
  keys.architecture = "Qwen3ForCausalLM";
  keys.default_head_dim = 128;
  return keys;
}

}  // namespace lockstep::model
