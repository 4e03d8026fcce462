// NAME.safetensors.index.json: the file of each tensor. Without libtorch.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/error.h"

namespace lockstep::checkpoint {

/// Tensor -> base name of its file. Error of `kind`: it is no index, or names a file elsewhere.
std::map<std::string, std::string> read_shard_index(
    const std::filesystem::path& index, ErrorKind kind);

}  // namespace lockstep::checkpoint
