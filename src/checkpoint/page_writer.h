// Writer of one rank's bytes of a file. It gathers tensors at any offset in a cache-sized buffer,
// hashes them there, and writes large blocks in the background.
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

/// Long runs of whole pages are written with direct I/O if the file system supports it (ext4, XFS);
/// this avoids a copy. Pages that this rank shares with other ranks are written through the page
/// cache at the end, because such writes lock the file and would wait for all ranks.
class PageWriter {
 public:
  /// Maximum size of place(); small enough that bytes are hashed while they are in the level-1
  /// cache.
  static constexpr size_t kPlaceBytes = 32 << 10;

  /// Opens an existing file of `size` bytes. Adds each whole page to the sum of its chunk. `behind`
  /// writes to `disk` and serves only this writer meanwhile.
  PageWriter(
      Disk& disk,
      const std::filesystem::path& path,
      uint64_t size,
      std::span<PageSum> sums,
      BackgroundWriter& behind);
  ~PageWriter();
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;

  /// Returns the address for the `count` bytes at `offset`; call filled() afterwards. Flushes first
  /// if the buffer is full or the bytes are not adjacent to it.
  std::byte* place(uint64_t offset, size_t count);
  void filled(size_t count);
  void write(uint64_t offset, std::span<const std::byte> bytes);
  /// Writes the rest and syncs. Throws the error of any write.
  void finish();
  /// Pages that begin with this rank's bytes and end with another rank's. They are read after all
  /// ranks have written.
  const std::vector<uint64_t>& shared_pages() const { return shared_pages_; }

 private:
  std::span<const std::byte> part(uint64_t from, uint64_t to) const;
  /// Adds the pages [hashed_, to) to the sums.
  void hash(uint64_t to);
  /// Copies [from, to), which write_in_memory() later writes through the page cache.
  void keep(uint64_t from, uint64_t to);
  void write_in_memory();
  /// Writes the whole pages of the buffer; with `ends`, all bytes, because the next bytes are not
  /// adjacent.
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
