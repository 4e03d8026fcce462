// The bytes that a rank writes of one file, from tensors that begin anywhere: gathered in a buffer
// that stays in the processor's cache, hashed there, and written in large blocks behind the next
// ones.
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

/// Where the file system takes it (ext4, XFS), long runs of whole pages go to the device past the
/// page cache: nothing copies them, and no memory is looked for. Pages of which this rank has a
/// part go through the cache, where the ranks of a machine meet: last, since such a write has the
/// file to itself, and would wait for every other rank's, as they for it.
class PageWriter {
 public:
  /// The most that place() is asked for: it is read and hashed while it is in the nearest cache.
  static constexpr size_t kPlaceBytes = 32 << 10;

  /// Of a file of `size` bytes, which exists; adds each page that it has whole to the sum of its
  /// chunk. `behind` writes to `disk`, and for nobody else meanwhile.
  PageWriter(
      Disk& disk,
      const std::filesystem::path& path,
      uint64_t size,
      std::span<PageSum> sums,
      BackgroundWriter& behind);
  ~PageWriter();
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;

  /// Where the `count` bytes from `offset` on are to be put, with filled() after that. Writes what
  /// is there already where there is no room, or where they do not follow it.
  std::byte* place(uint64_t offset, size_t count);
  void filled(size_t count);
  void write(uint64_t offset, std::span<const std::byte> bytes);
  /// What is left, and all of it to the device. Throws what went wrong with any write.
  void finish();
  /// Pages that begin with bytes of this rank and end with another's: to be read once all have
  /// written.
  const std::vector<uint64_t>& shared_pages() const { return shared_pages_; }

 private:
  std::span<const std::byte> part(uint64_t from, uint64_t to) const;
  /// Adds the pages [hashed_, to) to the sums.
  void hash(uint64_t to);
  /// Has [from, to) written through the page cache by write_in_memory().
  void keep(uint64_t from, uint64_t to);
  void write_in_memory();
  /// Writes the whole pages that are in the buffer; `ends`: all of it, the next bytes are
  /// elsewhere.
  void flush(bool ends);

  Disk& disk_;
  File file_;
  std::optional<File> direct_;
  uint64_t size_;
  std::span<PageSum> sums_;
  BackgroundWriter& behind_;
  uint64_t base_ = 0, begin_ = 0, end_ = 0;  // of the file: the buffer's, and what is in it
  uint64_t hashed_ = 0;                      // of that, by now
  std::vector<std::pair<uint64_t, std::vector<std::byte>>> kept_;  // by offset
  size_t kept_bytes_ = 0;
  std::vector<uint64_t> shared_pages_;
};

}  // namespace lockstep::checkpoint
