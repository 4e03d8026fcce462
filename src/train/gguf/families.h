// What llama.cpp calls a model's family, and what it computes of one.
#pragma once

#include "model/model_config.h"
#include "train/gguf/header.h"

namespace lockstep::train::gguf {

/// "llama", "qwen2", ...: general.architecture. Error (config) with all problems where llama.cpp
/// has none for the model, or would compute something else than the model.
std::string architecture_of(const model::ModelConfig& config);
/// The same where the model's windows are not llama.cpp's, which then sees further: nothing to say
/// is empty.
std::string note_of_windows(const model::ModelConfig& config);
/// Whether its rotary positions turn number 2i with 2i + 1, where the model turns i with the one
/// half of a head further on: rows of queries and keys are then in another order.
bool turns_neighbours(const std::string& architecture);

/// The keys of sizes and options: general.architecture and those that begin with it.
Metadata model_metadata(const model::ModelConfig& config);

}  // namespace lockstep::train::gguf
