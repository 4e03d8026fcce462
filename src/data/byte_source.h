// Byte stream of a file after gzip or zstd decompression.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace lockstep::data {

/// Sequential bytes of a file. Used by one thread.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills the front of `out` (not empty) and returns the number of bytes; 0 only at the end.
  /// Throws Error (data) with file and position if compressed data is damaged, truncated or
  /// followed by other bytes.
  virtual size_t read(std::span<char> out) = 0;
};

/// Opens a file. gzip (any number of members) and zstd (any number of frames) are detected by their
/// first bytes. Throws Error with a hint for a file named .gz or .zst that is neither, and for
/// bzip2, xz, zip, Parquet and UTF-16 files.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path);

}  // namespace lockstep::data
