// What differs between the families' config.json: key names and defaults.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/model_config.h"

namespace lockstep::model {

/// The names of a family's keys and what stands for a missing one.
struct FamilyKeys {
  Family family;
  std::string_view name;          // model_type
  std::string_view architecture;  // of the model with a language-modelling head
  const char* hidden_size;
  const char* layers;
  const char* heads;
  const char* max_positions;
  const char* intermediate_size;
  const char* activation;
  const char* norm_eps;
  const char* attention_dropout;
  int64_t default_vocab_size, default_hidden_size, default_layers, default_heads;
  int64_t default_kv_heads;           // 0: as many as heads
  int64_t default_head_dim;           // 0: the hidden size by the heads
  int64_t default_intermediate_size;  // 0: four times the hidden size
  int64_t default_max_positions;
  double default_norm_eps;
  double default_dropout;
  int64_t default_bos, default_eos;  // -1: none
  bool default_tie;
};

std::span<const FamilyKeys> all_families();
const FamilyKeys& keys_of(Family family);

}  // namespace lockstep::model
