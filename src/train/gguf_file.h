// A model as one file of llama.cpp's.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "train/gguf/tensors.h"
#include "train/merge.h"

namespace lockstep::train {

/// Writes `path`, which stands whole or not at all: a tensor at a time, so that one is held in
/// float32 and one as it is written. Returns what the file has otherwise than was asked for, a line
/// each. Error (config) where GGUF has no names for the model, data where a number is no number or
/// too large.
std::vector<std::string> save_gguf(
    const std::filesystem::path& path,
    const MergedWeights& weights,
    gguf::FileType type,
    const text::Tokenizer* tokenizer);

}  // namespace lockstep::train
