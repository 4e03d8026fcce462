// Tokenizer metadata of a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "text/tokenizer.h"
#include "train/gguf/header.h"

namespace lockstep::train::gguf {

/// Returns the tokenizer.* keys. The tokenizer model is "gpt2" for byte-level BPE and "llama" for
/// SentencePiece-style BPE with byte fallback. If `tokenizer` is null, the file has no tokenizer.
/// Ids of the model that the tokenizer does not have become unused tokens. Throws Error (config) if
/// llama.cpp has no equivalent pre-tokenizer, or if the tokenizer has more ids than the model.
Metadata tokenizer_metadata(
    const text::Tokenizer* tokenizer,
    const model::ModelConfig& config,
    const std::vector<int64_t>& stop_tokens,
    std::vector<std::string>& notes);

}  // namespace lockstep::train::gguf
