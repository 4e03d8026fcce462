// The blocks of each family: internal to nn.
#pragma once

#include <memory>

#include "model/model_config.h"
#include "nn/language_model.h"

namespace lockstep::nn {

/// A block of GPT-2: layer norms, packed query-key-value, an MLP of two matrices.
std::shared_ptr<Block> make_gpt2_block(const model::ModelConfig& config, int64_t layer);
/// A block of Llama, Mistral or Qwen2: RMS norms, rotary positions, a gated MLP.
std::shared_ptr<Block> make_llama_block(const model::ModelConfig& config, int64_t layer);

/// The attention of a layer, as its config says.
std::shared_ptr<Attention> make_attention(const model::ModelConfig& config, int64_t layer);
std::shared_ptr<Dropout> make_dropout(double probability, DropoutSite site, int64_t layer);

}  // namespace lockstep::nn
