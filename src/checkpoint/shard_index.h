// Parses NAME.safetensors.index.json, which contains the file of each tensor. Does not use
// libtorch.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/error.h"

namespace lockstep::checkpoint {

/// Returns the base name of each tensor's file. Throws Error of this kind if the file is not an
/// index or names a file in another folder.
std::map<std::string, std::string> read_shard_index(
    const std::filesystem::path& index, ErrorKind kind);

}  // namespace lockstep::checkpoint
