// What a family is: the keys of its config.json with their defaults, and the layers of its models.
// Each is a file in families/; the computation of its blocks is a file of the same name in nn/.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

class ConfigReader;
class LayerList;

/// The names of a family's keys, what stands for a missing one, and its layers.
struct FamilyKeys {
  Family family;
  std::string_view name;          // model_type
  std::string_view architecture;  // of the model with a language-modelling head
  // The keys of its config.json, and what stands for a missing one.
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
  int64_t default_kv_heads = 0;           // 0: as many as heads
  int64_t default_head_dim = 0;           // 0: the hidden size by the heads
  int64_t default_intermediate_size = 0;  // 0: four times the hidden size
  int64_t default_max_positions;
  double default_norm_eps = 1e-6;
  double default_dropout = 0;
  int64_t default_bos = -1, default_eos = -1;  // -1: none
  bool default_tie = false;
  /// The modules that have adapters where a user names none, as PEFT has them.
  std::vector<const char*> lora_targets;
  void (*describe_embedding)(LayerList& list);
  void (*describe_block)(LayerList& list, int64_t block);
  void (*describe_head)(LayerList& list);
  // What only some families have:
  const char* embedding_dropout = nullptr;  // keys of dropout; null: none
  const char* residual_dropout = nullptr;
  int64_t default_pad = -1;               // -1: none
  std::vector<int64_t> further_eos = {};  // beside default_eos
  const char* default_activation = "silu";
  bool gates_mlp = true;
  bool groups_queries = true;  // fewer key-value heads than queries, and head_dim
  bool rotates = true;         // rotary positions
  bool pads_embedding = true;  // pad_token_id is a row that look-ups do not train
  /// What stands before the number of a layer in folders that hold more of them than the model has,
  /// which predict further tokens (DeepSeek-AI, "DeepSeek-V3", 2024, section 2.2); null: none do.
  const char* further_layers = nullptr;
  /// Keys that change the mathematics in other families (parse_config.cpp) and that it reads.
  std::vector<const char*> reads = {};
  /// Its options; windows by layer, in place of the common ones; rotary positions likewise. Null:
  /// it has none but the common ones.
  void (*parse_options)(ConfigReader& reader, ModelConfig& config) = nullptr;
  void (*parse_windows)(ConfigReader& reader, ModelConfig& config) = nullptr;
  void (*parse_rotary)(ConfigReader& reader, ModelConfig& config) = nullptr;
};

// The families' files. In the order of Family:
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
