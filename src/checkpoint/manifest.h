// manifest.json: every file's size and the hashes of its chunks. It is written last. A folder
// without a manifest was never committed, and a folder that differs from its manifest is damaged.
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

/// Reads a folder's manifest. A missing manifest is reported as a checkpoint that was never
/// committed.
Manifest read_manifest(const std::filesystem::path& folder);

/// Lists the files of the manifest that are missing from `folder` or have another size. Called by
/// one rank.
std::vector<std::string> size_problems(
    const std::filesystem::path& folder, const Manifest& manifest);

enum class Verify { kSizes, kHashes };

/// Result of comparing `folder` with its manifest: each file's presence and size, then (kHashes)
/// every chunk's hash, divided among the ranks. Every rank must call and gets the same list of
/// problems, empty if the folder is intact. Each problem names the file, the bytes and their
/// tensors. A missing or unreadable manifest is a problem too.
struct Verification {
  Manifest manifest;
  std::vector<std::string> problems;
};
Verification verify_folder(
    const std::filesystem::path& folder, Verify depth, comm::Communicator& communicator);

}  // namespace lockstep::checkpoint
