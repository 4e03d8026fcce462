#include "checkpoint/page_writer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "checkpoint/manifest_text.h"

namespace lockstep::checkpoint {
namespace {

/// A shorter run past the page cache would wait for the device longer than it takes to copy it.
constexpr uint64_t kLeastDirect = 128 << 10;

constexpr uint64_t page_up(uint64_t at) {
  return (at + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

void PageWriter::Free::operator()(std::byte* bytes) const {
  std::free(bytes);
}

PageWriter::Buffer PageWriter::make_buffer() {
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, kBufferBytes)));
  if (buffer == nullptr) {
    throw std::bad_alloc();
  }
  return buffer;
}

PageWriter::PageWriter(
    Disk& disk,
    const std::filesystem::path& path,
    uint64_t size,
    std::span<PageSum> sums,
    std::byte* buffer)
    : disk_(disk),
      file_(path, File::Mode::kWrite),
      direct_(File::open_direct(path)),
      size_(size),
      sums_(sums),
      buffer_(buffer) {}

void PageWriter::write(uint64_t offset, std::span<const std::byte> bytes) {
  if (offset != end_ || begin_ == end_) {
    flush(/*ends=*/true);
    begin_ = end_ = offset;
    base_ = offset / kPageBytes * kPageBytes;
  }
  while (!bytes.empty()) {
    const size_t count = std::min<size_t>(bytes.size(), base_ + kBufferBytes - end_);
    std::memcpy(buffer_ + (end_ - base_), bytes.data(), count);
    bytes = bytes.subspan(count);
    end_ += count;
    if (end_ == base_ + kBufferBytes) {
      flush(/*ends=*/false);
    }
  }
}

void PageWriter::flush(bool ends) {
  const auto part = [&](uint64_t from, uint64_t to) {
    return std::span<const std::byte>(buffer_ + (from - base_), to - from);
  };
  const auto put = [&](File& file, uint64_t from, uint64_t to) {
    if (from < to) {
      disk_.write(file, from, part(from, to));
    }
  };
  const uint64_t first = std::min(page_up(begin_), end_);
  const uint64_t last = std::max(first, end_ / kPageBytes * kPageBytes);
  const bool has_file_end = end_ == size_;
  for (uint64_t at = first, next = 0; at < (has_file_end ? end_ : last); at = next) {
    next = std::min(has_file_end ? end_ : last, (at / kChunkBytes + 1) * kChunkBytes);
    sums_[at / kChunkBytes].add(part(at, next), at / kPageBytes);
  }
  if (ends && last < end_ && !has_file_end) {
    shared_pages_.push_back(last / kPageBytes);
  }
  if (direct_ && last - first >= kLeastDirect) {
    put(file_, begin_, first);
    put(*direct_, first, last);
    put(file_, last, end_);
  } else {
    put(file_, begin_, end_);
  }
  begin_ = end_;
  base_ = end_ / kPageBytes * kPageBytes;
}

void PageWriter::finish() {
  flush(/*ends=*/true);
  disk_.sync(file_);
}

}  // namespace lockstep::checkpoint
