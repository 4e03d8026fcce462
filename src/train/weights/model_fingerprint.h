// Fingerprint of a model's computation, used as a cache key.
#pragma once

#include <filesystem>
#include <string>

#include "config/core/config.h"
#include "model/source.h"

namespace lockstep::train {

enum class WithAdapter { kNo, kYes };

/// Returns a hash of everything that can affect the model's outputs: the files of its folder (or
/// the seed of its random weights), the quantization, the compute type, and with kYes the adapter:
/// its files, its configuration and the seed of its initial values. Reads the files. Does not cover
/// the tokenizer and the chat template; caches must add a hash of the model's input tokens.
std::string model_fingerprint(
    const config::Config& config, const model::ModelSource& source, WithAdapter adapter);

/// Returns a hash of a folder's weight files and configuration files.
std::string folder_fingerprint(const std::filesystem::path& folder);

}  // namespace lockstep::train
