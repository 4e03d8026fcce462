// A tokenizer as a GGUF file holds it.
#pragma once

#include <string>
#include <vector>

#include "model/model_config.h"
#include "text/tokenizer.h"
#include "train/gguf/header.h"

namespace lockstep::train::gguf {

/// The keys tokenizer.*: of byte-pair encoding over bytes ("gpt2"), or over text with a fallback to
/// bytes, as SentencePiece has it ("llama"). Null: a file without one. Ids that the model has and
/// the tokenizer has not become unused tokens. Error (config) where llama.cpp has nothing that cuts
/// texts as the tokenizer does, or the tokenizer has more ids than the model.
Metadata tokenizer_metadata(
    const text::Tokenizer* tokenizer,
    const model::ModelConfig& config,
    std::vector<std::string>& notes);

}  // namespace lockstep::train::gguf
