// What llama.cpp calls a model's family, and what it computes of one.
#pragma once

#include <string>
#include <vector>

#include "model/model_config.h"
#include "train/gguf/header.h"

namespace lockstep::train::gguf {

/// "llama", "qwen2", ...: general.architecture. Error (config) with all problems where llama.cpp
/// has none for the model, or would compute something else than the model.
std::string architecture_of(const model::ModelConfig& config);
/// What llama.cpp computes a little otherwise, a line each: windows that it has not, and so sees
/// further; rounded bounds of a yarn. Errors as above.
std::vector<std::string> notes_of(const model::ModelConfig& config);
/// Whether the embedding is written once more, as the head that llama.cpp wants.
bool writes_tied_head(const model::ModelConfig& config);
/// Whether its rotary positions turn number 2i with 2i + 1, where the model turns i with the one
/// half of a head further on: rows of queries and keys are then in another order.
bool turns_neighbours(const std::string& architecture);

/// The keys of sizes and options: general.architecture and those that begin with it.
Metadata model_metadata(const model::ModelConfig& config);

}  // namespace lockstep::train::gguf
