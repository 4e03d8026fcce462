// manifest.json contains the size of every file and the hashes of its chunks. It is written last. A
// folder without manifest was never committed. A folder that differs from its manifest is damaged.
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

/// Reads the manifest of a folder. If it is missing, the error states that the checkpoint was never
/// committed.
Manifest read_manifest(const std::filesystem::path& folder);

/// Returns problems with the files of the manifest that are missing from `folder` or have another
/// size. Called on one rank.
std::vector<std::string> size_problems(
    const std::filesystem::path& folder, const Manifest& manifest);

enum class Verify { kSizes, kHashes };

/// Result of verify_folder(), which compares `folder` with its manifest: the presence and size of
/// each file, and with kHashes also the hash of every chunk. Hashing is divided among the ranks.
/// Every rank gets the same list of problems, which is empty if the folder is intact. Each problem
/// names the file, the bytes and their tensors. A missing or unreadable manifest is a problem, too.
/// Must be called on every rank.
struct Verification {
  Manifest manifest;
  std::vector<std::string> problems;
};
Verification verify_folder(
    const std::filesystem::path& folder, Verify depth, comm::Communicator& communicator);

}  // namespace lockstep::checkpoint
