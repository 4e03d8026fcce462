// Content of manifest.json. Does not use libtorch.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";
/// Number of bytes per hashed chunk. It is fixed, so that hashing can be divided among any number
/// of ranks.
inline constexpr uint64_t kChunkBytes = 16ULL << 20;
inline uint64_t chunks_of(uint64_t size) {
  return size / kChunkBytes + (size % kChunkBytes != 0 ? 1 : 0);
}

struct FileRecord {
  uint64_t size = 0;
  std::vector<std::string> chunks;  // hash of each 16 MiB chunk as 32 hex digits
};

/// Kind of hash of a chunk: XXH3-128 of the whole chunk (in older checkpoints) or the sum over its
/// pages (PageSum).
enum class ChunkHash { kAtOnce, kPages };
/// Returns the hash of the chunk at `offset` of its file.
std::string chunk_hash(ChunkHash hash, std::span<const std::byte> chunk, uint64_t offset);
/// Returns the record of a file with this content, hashed by pages.
FileRecord record_of(std::span<const std::byte> bytes);

struct Manifest {
  /// Commit number. The newest checkpoint of a folder has the largest one.
  int64_t sequence = 0;
  ChunkHash hash = ChunkHash::kPages;
  std::map<std::string, FileRecord> files;  // by base name
};

std::string manifest_json(const Manifest& manifest);
/// Throws Error (checkpoint) with `source` if the text is not a valid manifest.
Manifest parse_manifest(std::string_view text, std::string_view source);

}  // namespace lockstep::checkpoint
