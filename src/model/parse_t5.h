// The keys of config.json that T5 alone has.
#pragma once

#include <string>

#include "model/config_reader.h"
#include "model/model_config.h"

namespace lockstep::model {

/// What feed_forward_proj says: "relu", "gated-gelu", ...
struct T5Mlp {
  std::string activation;  // by Hugging Face's name
  bool gated = false;
};
T5Mlp parse_t5_mlp(ConfigReader& reader);

/// Relative positions, dropout, initialisation, and the scale of the head, which follows from
/// tie_word_embeddings unless scale_decoder_outputs says otherwise.
void parse_t5_options(ConfigReader& reader, ModelConfig& config);

/// pad_token_id and decoder_start_token_id, with T5's defaults; the vocabulary is known.
void parse_t5_tokens(ConfigReader& reader, ModelConfig& config);

}  // namespace lockstep::model
