#include "model/family.h"

#include <array>

namespace lockstep::model {
namespace {

constexpr FamilyKeys rotary_family(
    Family family, std::string_view name, std::string_view architecture) {
  return {
      .family = family,
      .name = name,
      .architecture = architecture,
      .hidden_size = "hidden_size",
      .layers = "num_hidden_layers",
      .heads = "num_attention_heads",
      .max_positions = "max_position_embeddings",
      .intermediate_size = "intermediate_size",
      .activation = "hidden_act",
      .norm_eps = "rms_norm_eps",
      .attention_dropout = "attention_dropout",
      .default_vocab_size = 32000,
      .default_hidden_size = 4096,
      .default_layers = 32,
      .default_heads = 32,
      .default_kv_heads = 0,
      .default_head_dim = 0,
      .default_intermediate_size = 11008,
      .default_max_positions = 2048,
      .default_norm_eps = 1e-6,
      .default_dropout = 0,
      .default_bos = 1,
      .default_eos = 2,
      .default_tie = false,
  };
}

constexpr FamilyKeys kGpt2Keys = {
    .family = Family::kGpt2,
    .name = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .hidden_size = "n_embd",
    .layers = "n_layer",
    .heads = "n_head",
    .max_positions = "n_positions",
    .intermediate_size = "n_inner",
    .activation = "activation_function",
    .norm_eps = "layer_norm_epsilon",
    .attention_dropout = "attn_pdrop",
    .default_vocab_size = 50257,
    .default_hidden_size = 768,
    .default_layers = 12,
    .default_heads = 12,
    .default_kv_heads = 0,
    .default_head_dim = 0,
    .default_intermediate_size = 0,
    .default_max_positions = 1024,
    .default_norm_eps = 1e-5,
    .default_dropout = 0.1,
    .default_bos = 50256,
    .default_eos = 50256,
    .default_tie = true,
};

constexpr FamilyKeys mistral_keys() {
  FamilyKeys keys = rotary_family(Family::kMistral, "mistral", "MistralForCausalLM");
  keys.default_kv_heads = 8;
  keys.default_intermediate_size = 14336;
  keys.default_max_positions = 131072;
  return keys;
}

constexpr FamilyKeys qwen2_keys() {
  FamilyKeys keys = rotary_family(Family::kQwen2, "qwen2", "Qwen2ForCausalLM");
  keys.default_vocab_size = 151936;
  keys.default_kv_heads = 32;
  keys.default_intermediate_size = 22016;
  keys.default_max_positions = 32768;
  keys.default_bos = -1;
  keys.default_eos = -1;
  return keys;
}

constexpr FamilyKeys qwen3_keys() {
  FamilyKeys keys = qwen2_keys();
  keys.family = Family::kQwen3;
  keys.name = "qwen3";
  keys.architecture = "Qwen3ForCausalLM";
  keys.default_head_dim = 128;
  return keys;
}

constexpr FamilyKeys kT5Keys = {
    .family = Family::kT5,
    .name = "t5",
    .architecture = "T5ForConditionalGeneration",
    .hidden_size = "d_model",
    .layers = "num_layers",
    .heads = "num_heads",
    .max_positions = "n_positions",
    .intermediate_size = "d_ff",
    .activation = "feed_forward_proj",
    .norm_eps = "layer_norm_epsilon",
    .attention_dropout = "dropout_rate",
    .default_vocab_size = 32128,
    .default_hidden_size = 512,
    .default_layers = 6,
    .default_heads = 8,
    .default_kv_heads = 0,
    .default_head_dim = 64,
    .default_intermediate_size = 2048,
    .default_max_positions = 512,
    .default_norm_eps = 1e-6,
    .default_dropout = 0.1,
    .default_bos = -1,
    .default_eos = 1,
    .default_tie = true,
};

constexpr std::array kFamilies = {
    kGpt2Keys,
    rotary_family(Family::kLlama, "llama", "LlamaForCausalLM"),
    mistral_keys(),
    qwen2_keys(),
    qwen3_keys(),
    kT5Keys,
};

}  // namespace

std::span<const FamilyKeys> all_families() {
  return kFamilies;
}

const FamilyKeys& keys_of(Family family) {
  return kFamilies.at(static_cast<size_t>(family));
}

std::string_view family_name(Family family) {
  return keys_of(family).name;
}

}  // namespace lockstep::model
