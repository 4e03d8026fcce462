// manifest.json: every file's size and the hashes of its chunks. It is written last: a folder
// without one was never committed, and a folder that differs from its own is damaged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "comm/communicator.h"

namespace lockstep::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";
/// Fixed, so that hashes can be dealt over any number of ranks.
inline constexpr uint64_t kChunkBytes = 16ULL << 20;

struct FileRecord {
  uint64_t size = 0;
  std::vector<std::string> chunks;  // XXH3-128 of each 16 MiB, 32 hex digits
};

struct Manifest {
  /// Higher than that of every checkpoint that stood beside it when it was saved: the newest has
  /// the highest.
  int64_t sequence = 0;
  std::map<std::string, FileRecord> files;  // by base name
};

std::string manifest_json(const Manifest& manifest);
/// Throws (checkpoint) with `source` where the text is no manifest.
Manifest parse_manifest(std::string_view text, std::string_view source);
/// Of a folder; a missing one is told as a checkpoint that was never committed.
Manifest read_manifest(const std::filesystem::path& folder);

/// What of `folder` cannot be as the manifest says, by presence and size alone. For one rank.
std::vector<std::string> size_problems(
    const std::filesystem::path& folder, const Manifest& manifest);

/// Reads the files `sizes` (name and size) of `folder` and hashes them, chunks dealt over the
/// ranks. Every rank calls, with the same sizes; every rank gets all records. Throws on every rank
/// where one cannot read.
std::map<std::string, FileRecord> hash_files(
    const std::filesystem::path& folder,
    const std::map<std::string, uint64_t>& sizes,
    comm::Communicator& communicator);

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
