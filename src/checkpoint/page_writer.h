// The bytes that a rank writes to one file, from tensors at any offset: gathered in a cache-sized
// buffer, hashed there, and written in large blocks in the background.
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

/// Long runs of whole pages are written with direct I/O if the file system supports it (ext4, XFS),
/// which avoids a copy. Pages that this rank shares with others go through the page cache at the
/// end: such writes lock the file and would wait for all ranks.
class PageWriter {
 public:
  /// Maximum size of place(): the bytes are hashed while they are in the first-level cache.
  static constexpr size_t kPlaceBytes = 32 << 10;

  /// For an existing file of `size` bytes. Adds each whole page to the sum of its chunk. `behind`
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
  /// Pages that begin with this rank's bytes and end with another's; they are read after all ranks
  /// have written.
  const std::vector<uint64_t>& shared_pages() const { return shared_pages_; }

 private:
  std::span<const std::byte> part(uint64_t from, uint64_t to) const;
  /// Adds the pages [hashed_, to) to the sums.
  void hash(uint64_t to);
  /// Has [from, to) written through the page cache by write_in_memory().
  void keep(uint64_t from, uint64_t to);
  void write_in_memory();
  /// Writes the whole pages of the buffer; with `ends` everything, because the next bytes are
  /// elsewhere.
  void flush(bool ends);

  Disk& disk_;
  File file_;
  std::optional<File> direct_;
  uint64_t size_;
  std::span<PageSum> sums_;
  BackgroundWriter& behind_;
  uint64_t base_ = 0, begin_ = 0, end_ = 0;  // file offsets of the buffer and of its content
  uint64_t hashed_ = 0;                      // of that, by now
  std::vector<std::pair<uint64_t, std::vector<std::byte>>> kept_;  // by offset
  size_t kept_bytes_ = 0;
  std::vector<uint64_t> shared_pages_;
};

}  // namespace lockstep::checkpoint
