// Exports a model to GGUF, llama.cpp's single-file format.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "train/gguf/tensors.h"
#include "train/merge.h"

namespace lockstep::train {

/// Writes `path` atomically. Only one tensor at a time is in memory, in float32 and in its file
/// type. Returns a note for each difference from the requested format. Throws Error (config) if
/// GGUF does not support the model, and Error (data) if a value is NaN or too large.
std::vector<std::string> save_gguf(
    const std::filesystem::path& path,
    const MergedWeights& weights,
    gguf::FileType type,
    const text::Tokenizer* tokenizer);

}  // namespace lockstep::train
