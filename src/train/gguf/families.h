// Maps model families to llama.cpp architectures.
#pragma once

#include <string>
#include <vector>

#include "model/model_config.h"
#include "train/gguf/header.h"

namespace lockstep::train::gguf {

/// Returns general.architecture: "llama", "qwen2", ... If llama.cpp does not support the model or
/// would compute a different result, throws Error (config) that lists all problems.
std::string architecture_of(const model::ModelConfig& config);
/// Returns one line for each small difference between the model and its computation in llama.cpp:
/// missing sliding windows, rounded YaRN bounds. Throws like architecture_of().
std::vector<std::string> notes_of(const model::ModelConfig& config);
/// Returns true if a tied embedding must be written a second time as the output tensor.
bool writes_tied_head(const model::ModelConfig& config);
/// Returns true if llama.cpp's rotary embedding pairs elements 2i and 2i + 1. The model pairs
/// elements i and i + half the head size, so the rows of queries and keys must be reordered.
bool turns_neighbours(const std::string& architecture);

/// Returns the metadata about sizes and options: general.architecture and the keys with its prefix.
Metadata model_metadata(const model::ModelConfig& config);

}  // namespace lockstep::train::gguf
