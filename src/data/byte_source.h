// The bytes of a file as they were before gzip or zstd, streamed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace lockstep::data {

/// Bytes from start to end. One thread.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills the front of `out` (not empty) and returns how much; 0 at the end only. Compressed data
  /// that is damaged, cut off or followed by other bytes is an Error of kind kData that names file
  /// and place.
  virtual size_t read(std::span<char> out) = 0;
};

/// Opens a file. gzip (any number of members) and zstd (any number of frames) are told by their
/// first bytes. A file named .gz or .zst that is not, and bzip2, xz, zip, Parquet and UTF-16 files,
/// are Errors that say what to do.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path);

}  // namespace lockstep::data
