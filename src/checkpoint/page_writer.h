// The bytes that a rank writes of one file, from tensors that begin anywhere: gathered in a buffer
// that stays in the processor's cache, hashed there, and written by the mebibyte while the next is
// gathered.
#pragma once

#include <array>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/file.h"
#include "checkpoint/disk.h"
#include "checkpoint/page_sum.h"

namespace lockstep::checkpoint {

/// A mebibyte at a page's address, and its way to the device.
struct PageBuffer {
  static constexpr size_t kBytes = 1 << 20;
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  PageBuffer();

  std::unique_ptr<std::byte[], Free> bytes;
  /// Of its last write past the page cache, if there was one.
  std::future<void> written;
};
/// One is filled while the others are written.
using PageBuffers = std::array<PageBuffer, 4>;

/// Where the file system takes it (ext4, XFS), long runs of whole pages go to the device past the
/// page cache: nothing copies them, and no memory is looked for. Pages of which this rank has a
/// part go through the cache, where the ranks of a machine meet.
class PageWriter {
 public:
  /// Of a file of `size` bytes, which exists; adds each page that it has whole to the sum of its
  /// chunk. The buffers outlive it, and are one writer's at a time.
  PageWriter(
      Disk& disk,
      const std::filesystem::path& path,
      uint64_t size,
      std::span<PageSum> sums,
      PageBuffers& buffers);
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;
  /// Waits for what is under way.
  ~PageWriter();

  void write(uint64_t offset, std::span<const std::byte> bytes);
  /// What is left, and all of it to the device.
  void finish();
  /// Pages that begin with bytes of this rank and end with another's: to be read once all have
  /// written.
  const std::vector<uint64_t>& shared_pages() const { return shared_pages_; }

 private:
  /// Begins to write what is in the buffer; `ends`: the next bytes are elsewhere.
  void flush(bool ends);
  /// Throws what a write past the page cache has thrown.
  static void await(PageBuffer& buffer);

  Disk& disk_;
  File file_;
  std::optional<File> direct_;
  uint64_t size_;
  std::span<PageSum> sums_;
  PageBuffers& buffers_;
  size_t filled_ = 0;                        // the number of the buffer that is being filled
  uint64_t base_ = 0, begin_ = 0, end_ = 0;  // of the file: the buffer's, and what is in it
  std::vector<uint64_t> shared_pages_;
};

}  // namespace lockstep::checkpoint
