// Functions that create the blocks of each model family. Internal to nn.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "model/model_config.h"
#include "nn/language_model.h"
#include "nn/unit_layers.h"

namespace lockstep::nn {

/// Creates a GPT-2 block: layer norms, a packed query-key-value projection, and an MLP with two
/// matrices.
std::shared_ptr<Block> make_gpt2_block(const model::ModelConfig& config, int64_t layer);
/// Creates a block of any other decoder (Llama and its successors, GPT-NeoX, GPT-Neo, mixtures of
/// experts). The model's description lists the layers of the block.
std::shared_ptr<Block> make_decoder_block(const model::ModelConfig& config, int64_t layer);

/// Creates a block of T5's encoder or decoder: RMS norms, relative positions, cross-attention in
/// the decoder, and an MLP with or without a gate.
std::shared_ptr<Block> make_t5_block(const model::ModelConfig& config, int64_t layer);
/// Creates T5's other units without parameters: the embedding with the tables of relative
/// positions, and the scaled head.
std::unique_ptr<LanguageModel> make_t5(
    const model::ModelConfig& config, ModelPart part, std::vector<std::shared_ptr<Block>> blocks);

/// Creates an encoder's other units without parameters: the embedding with segments and a norm, and
/// the head with a linear layer and a bias.
std::unique_ptr<LanguageModel> make_encoder(
    const model::ModelConfig& config, ModelPart part, std::vector<std::shared_ptr<Block>> blocks);

/// Creates the attention of a layer according to its config.
std::shared_ptr<Attention> make_attention(const model::ModelConfig& config, int64_t layer);
/// Creates a dropout. `role` and `layer` identify the slot.
std::shared_ptr<Dropout> make_dropout(double probability, std::string_view role, int64_t layer);

}  // namespace lockstep::nn
