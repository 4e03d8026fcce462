// Fingerprint of a model as it computes, the key of everything cached that depends on one.
#pragma once

#include <filesystem>
#include <string>

#include "config/core/config.h"
#include "model/source.h"

namespace lockstep::train {

enum class WithAdapter { kNo, kYes };

/// Returns a hash that changes whenever an output of the model could: the files of its folder (or
/// how its random weights are drawn), the quantization, the type of computation, and with kYes the
/// adapter: its files, its configuration and the seed of its initial values. Reads the files. Does
/// not cover the tokenizer and the chat template: caches add a hash of the tokens that the model
/// reads.
std::string model_fingerprint(
    const config::Config& config, const model::ModelSource& source, WithAdapter adapter);

/// Returns a hash of the weight files in a folder and of the configurations beside them.
std::string folder_fingerprint(const std::filesystem::path& folder);

}  // namespace lockstep::train
