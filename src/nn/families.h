// The blocks of each family: internal to nn.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "model/model_config.h"
#include "nn/language_model.h"
#include "nn/unit_layers.h"

namespace lockstep::nn {

/// A block of GPT-2: layer norms, packed query-key-value, an MLP of two matrices.
std::shared_ptr<Block> make_gpt2_block(const model::ModelConfig& config, int64_t layer);
/// A block of every other decoder (Llama and what came after it, GPT-NeoX, GPT-Neo, mixtures of
/// experts): what it has is what the model's description lists of it.
std::shared_ptr<Block> make_decoder_block(const model::ModelConfig& config, int64_t layer);

/// A block of T5's encoder or decoder: RMS norms, relative positions, attention to the source in
/// the decoder's, an MLP with or without a gate.
std::shared_ptr<Block> make_t5_block(const model::ModelConfig& config, int64_t layer);
/// T5 around its blocks, without parameters yet: the tables of relative positions beside the
/// embedding, the scale of the head.
std::unique_ptr<LanguageModel> make_t5(
    const model::ModelConfig& config, ModelPart part, std::vector<std::shared_ptr<Block>> blocks);

/// An encoder alone around its blocks, without parameters yet: segments and a norm beside the
/// embedding, a linear and a bias in its head.
std::unique_ptr<LanguageModel> make_encoder(
    const model::ModelConfig& config, ModelPart part, std::vector<std::shared_ptr<Block>> blocks);

/// The attention of a layer, as its config says.
std::shared_ptr<Attention> make_attention(const model::ModelConfig& config, int64_t layer);
/// `role` and `layer` are the slot's.
std::shared_ptr<Dropout> make_dropout(double probability, std::string_view role, int64_t layer);

}  // namespace lockstep::nn
