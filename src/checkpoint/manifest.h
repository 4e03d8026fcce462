// manifest.json: every file's size and the hashes of its chunks. It is written last: a folder
// without one was never committed, and a folder that differs from its own is damaged.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest_text.h"
#include "checkpoint/safetensors.h"
#include "comm/communicator.h"

namespace lockstep::checkpoint {

/// Of a folder; a missing one is told as a checkpoint that was never committed.
Manifest read_manifest(const std::filesystem::path& folder);

/// What of `folder` cannot be as the manifest says, by presence and size alone. For one rank.
std::vector<std::string> size_problems(
    const std::filesystem::path& folder, const Manifest& manifest);

enum class Verify { kSizes, kHashes };

/// Compares `folder` with its manifest: each file's presence and size, then (kHashes) every chunk's
/// hash, dealt over the ranks. Every rank calls and gets the same list of problems, empty where all
/// is well; each names the file, the bytes and the tensors in them. A manifest that is missing or
/// unreadable is a problem too.
struct Verification {
  Manifest manifest;
  std::vector<std::string> problems;
};
Verification verify_folder(
    const std::filesystem::path& folder, Verify depth, comm::Communicator& communicator);

}  // namespace lockstep::checkpoint
