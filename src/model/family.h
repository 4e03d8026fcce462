// Model families: config.json keys, defaults and layers. Each family has a file in families/; its
// blocks are implemented in a file of the same name in nn/.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

class ConfigReader;
class LayerList;

/// Config keys, defaults and layers of a family.
struct FamilyKeys {
  Family family;
  std::string_view name;          // model_type
  std::string_view architecture;  // class name with a language modeling head
  // Keys of config.json and their defaults.
  const char* vocab_size = "vocab_size";
  const char* hidden_size = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* kv_heads = "num_key_value_heads";
  const char* head_dim = "head_dim";
  const char* max_positions = "max_position_embeddings";
  const char* intermediate_size = "intermediate_size";
  const char* activation = "hidden_act";
  const char* norm_eps = "rms_norm_eps";
  const char* attention_dropout = "attention_dropout";
  int64_t default_vocab_size, default_hidden_size, default_layers, default_heads;
  int64_t default_kv_heads = 0;           // 0: number of heads
  int64_t default_head_dim = 0;           // 0: hidden size divided by the number of heads
  int64_t default_intermediate_size = 0;  // 0: four times the hidden size
  int64_t default_max_positions;
  double default_norm_eps = 1e-6;
  double default_dropout = 0;
  int64_t default_bos = -1, default_eos = -1;  // -1: none
  bool default_tie = false;
  /// Default target modules of adapters, as in PEFT.
  std::vector<const char*> lora_targets;
  void (*describe_embedding)(LayerList& list);
  void (*describe_block)(LayerList& list, int64_t block);
  void (*describe_head)(LayerList& list);
  // Optional properties:
  const char* embedding_dropout = nullptr;  // dropout keys; null: none
  const char* residual_dropout = nullptr;
  int64_t default_pad = -1;               // -1: none
  std::vector<int64_t> further_eos = {};  // in addition to default_eos
  const char* default_activation = "silu";
  bool gates_mlp = true;
  bool groups_queries = true;  // supports grouped-query attention and head_dim
  bool rotates = true;         // uses rotary positions
  bool pads_embedding = true;  // row pad_token_id gets no gradient from look-ups
  /// Layer name prefix in checkpoints that contain additional multi-token prediction layers
  /// (DeepSeek-AI, "DeepSeek-V3", 2024, section 2.2); null: none.
  const char* further_layers = nullptr;
  /// Keys supported by this family that change the computation and are rejected for other families
  /// (parse_config.cpp).
  std::vector<const char*> reads = {};
  /// Parse the family's own options, sliding windows and rotary positions. Null: only common
  /// options.
  void (*parse_options)(ConfigReader& reader, ModelConfig& config) = nullptr;
  void (*parse_windows)(ConfigReader& reader, ModelConfig& config) = nullptr;
  void (*parse_rotary)(ConfigReader& reader, ModelConfig& config) = nullptr;
};

// Defined in families/, in the same order as Family:
FamilyKeys gpt2_family();
FamilyKeys llama_family();
FamilyKeys mistral_family();
FamilyKeys qwen2_family();
FamilyKeys qwen3_family();
FamilyKeys t5_family();
FamilyKeys mixtral_family();
FamilyKeys qwen3_moe_family();
FamilyKeys qwen2_moe_family();
FamilyKeys olmoe_family();
FamilyKeys gpt_oss_family();
FamilyKeys gemma_family();
FamilyKeys gemma2_family();
FamilyKeys gemma3_family();
FamilyKeys phi3_family();
FamilyKeys gpt_neox_family();
FamilyKeys gpt_neo_family();
FamilyKeys olmo2_family();
FamilyKeys olmo3_family();
FamilyKeys glm_family();
FamilyKeys glm4_family();
FamilyKeys chatglm_family();
FamilyKeys glm4_moe_family();
FamilyKeys bert_family();
FamilyKeys roberta_family();
FamilyKeys distilbert_family();

std::span<const FamilyKeys> all_families();
const FamilyKeys& keys_of(Family family);

}  // namespace lockstep::model
