// Writes one rank's bytes of a file. Tensors at any offset are gathered in a cache-sized buffer,
// hashed there, and written in large blocks in the background.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/file.h"
#include "checkpoint/background_writer.h"
#include "checkpoint/disk.h"
#include "checkpoint/page_sum.h"

namespace lockstep::checkpoint {

/// Writes the bytes of a rank. Long runs of whole pages are written with direct I/O if the file
/// system supports it (ext4, XFS), which avoids a copy. Pages that this rank shares with other
/// ranks are written through the page cache at the end, because such writes lock the file and would
/// wait for all ranks.
class PageWriter {
 public:
  /// Maximum size for place(). It is so small that bytes are still in the level-1 cache when they
  /// are hashed.
  static constexpr size_t kPlaceBytes = 32 << 10;

  /// Opens an existing file of `size` bytes. Each whole page is added to the sum of its chunk in
  /// `sums`. `behind` must write to `disk` and must not be used by others during the lifetime of
  /// this object.
  PageWriter(
      Disk& disk,
      const std::filesystem::path& path,
      uint64_t size,
      std::span<PageSum> sums,
      BackgroundWriter& behind);
  ~PageWriter();
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;

  /// Returns the address to which the caller must write the `count` bytes at `offset`; it must then
  /// call filled(). Flushes first if the buffer is full or the bytes are not adjacent to its
  /// content.
  std::byte* place(uint64_t offset, size_t count);
  void filled(size_t count);
  void write(uint64_t offset, std::span<const std::byte> bytes);
  /// Writes the rest and syncs the file. Throws if any write failed.
  void finish();
  /// Returns the pages that begin with this rank's bytes and end with those of another rank. They
  /// must be read and hashed after all ranks have written.
  const std::vector<uint64_t>& shared_pages() const { return shared_pages_; }

 private:
  std::span<const std::byte> part(uint64_t from, uint64_t to) const;
  /// Adds the pages [hashed_, to) to the sums.
  void hash(uint64_t to);
  /// Copies [from, to). write_in_memory() later writes the copy through the page cache.
  void keep(uint64_t from, uint64_t to);
  void write_in_memory();
  /// Writes the whole pages of the buffer. With `ends`, writes all bytes, because the next bytes
  /// are not adjacent.
  void flush(bool ends);

  Disk& disk_;
  File file_;
  std::optional<File> direct_;
  uint64_t size_;
  std::span<PageSum> sums_;
  BackgroundWriter& behind_;
  uint64_t base_ = 0, begin_ = 0, end_ = 0;  // file offsets of the buffer and of its content
  uint64_t hashed_ = 0;                      // file offset up to which pages are hashed
  std::vector<std::pair<uint64_t, std::vector<std::byte>>> kept_;  // by offset
  size_t kept_bytes_ = 0;
  std::vector<uint64_t> shared_pages_;
};

}  // namespace lockstep::checkpoint
