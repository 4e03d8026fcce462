// The text of manifest.json. Without libtorch.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";
/// Fixed, so that hashes can be dealt over any number of ranks.
inline constexpr uint64_t kChunkBytes = 16ULL << 20;
inline uint64_t chunks_of(uint64_t size) {
  return size / kChunkBytes + (size % kChunkBytes != 0 ? 1 : 0);
}

struct FileRecord {
  uint64_t size = 0;
  std::vector<std::string> chunks;  // of each 16 MiB, 32 hex digits
};

/// What a chunk's hash is of: the chunk at once (XXH3-128), as older checkpoints have it, or its
/// pages (PageSum).
enum class ChunkHash { kAtOnce, kPages };
/// Of the chunk that begins at `offset` of its file.
std::string chunk_hash(ChunkHash hash, std::span<const std::byte> chunk, uint64_t offset);
/// Of a file that is these bytes, by its pages.
FileRecord record_of(std::span<const std::byte> bytes);

struct Manifest {
  /// Higher than that of every checkpoint that stood beside it when it was saved: the newest has
  /// the highest.
  int64_t sequence = 0;
  ChunkHash hash = ChunkHash::kPages;
  std::map<std::string, FileRecord> files;  // by base name
};

std::string manifest_json(const Manifest& manifest);
/// Throws (checkpoint) with `source` where the text is no manifest.
Manifest parse_manifest(std::string_view text, std::string_view source);

}  // namespace lockstep::checkpoint
