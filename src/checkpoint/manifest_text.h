// The text of manifest.json. Without libtorch.
#pragma once

#include <cstdint>
#include <map>
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

}  // namespace lockstep::checkpoint
