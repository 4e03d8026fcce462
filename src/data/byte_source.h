// Reads the bytes of a file, decompressing gzip and zstd.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace lockstep::data {

/// Bytes of a file, read sequentially. Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Reads bytes to the start of `out`, which must not be empty, and returns their number. Returns
  /// 0 only at the end. Throws Error (data) with file and position if compressed data is damaged or
  /// truncated, or if other bytes follow it.
  virtual size_t read(std::span<char> out) = 0;
};

/// Opens a file. gzip (any number of members) and zstd (any number of frames) are detected by their
/// first bytes. Throws Error with a hint if a file named .gz or .zst has neither format, and for
/// bzip2, xz, zip, Parquet and UTF-16 files.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path);

}  // namespace lockstep::data
