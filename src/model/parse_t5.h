// T5-specific options of config.json.
#pragma once

#include <string>

#include "model/config_reader.h"
#include "model/model_config.h"

namespace lockstep::model {

/// Parsed feed_forward_proj: "relu", "gated-gelu", ...
struct T5Mlp {
  std::string activation;  // Hugging Face name
  bool gated = false;
};
T5Mlp parse_t5_mlp(ConfigReader& reader);

/// Parses relative positions, dropout, initialization and the head's scale. The scale follows from
/// tie_word_embeddings unless scale_decoder_outputs is set.
void parse_t5_options(ConfigReader& reader, ModelConfig& config);

/// Parses pad_token_id and decoder_start_token_id with T5's defaults. The vocabulary size must
/// already be parsed.
void parse_t5_tokens(ConfigReader& reader, ModelConfig& config);

}  // namespace lockstep::model
