#include "checkpoint/page_writer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include <sys/mman.h>

#include "checkpoint/manifest_text.h"

namespace lockstep::checkpoint {
namespace {

/// A shorter run past the page cache would wait for the device longer than it takes to copy it.
constexpr uint64_t kLeastDirect = 128 << 10;
constexpr size_t kMostKept = 4 << 20;

constexpr uint64_t page_down(uint64_t at) {
  return at / kPageBytes * kPageBytes;
}

constexpr uint64_t page_up(uint64_t at) {
  return page_down(at + kPageBytes - 1);
}

}  // namespace

void PageWriter::Free::operator()(std::byte* bytes) const {
  std::free(bytes);
}

PageWriter::Buffer PageWriter::make_buffer() {
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(kBufferBytes, kBufferBytes)));
  if (buffer == nullptr) {
    throw std::bad_alloc();
  }
  ::madvise(buffer.get(), kBufferBytes, MADV_HUGEPAGE);  // a hint
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

std::byte* PageWriter::place(uint64_t offset, size_t count) {
  if (offset != end_ || begin_ == end_) {
    flush(/*ends=*/true);
    begin_ = end_ = offset;
    base_ = page_down(offset);
    hashed_ = page_up(offset);
  } else if (end_ - base_ + count > kBufferBytes) {
    flush(/*ends=*/false);
  }
  return buffer_ + (end_ - base_);
}

void PageWriter::filled(size_t count) {
  end_ += count;
  hash(page_down(end_));  // while they are in the nearest cache
}

void PageWriter::write(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), kPlaceBytes);
    std::memcpy(place(offset, count), bytes.data(), count);
    filled(count);
    bytes = bytes.subspan(count);
    offset += count;
  }
}

std::span<const std::byte> PageWriter::part(uint64_t from, uint64_t to) const {
  return {buffer_ + (from - base_), to - from};
}

void PageWriter::hash(uint64_t to) {
  while (hashed_ < to) {
    const uint64_t next = std::min(to, (hashed_ / kChunkBytes + 1) * kChunkBytes);
    sums_[hashed_ / kChunkBytes].add(part(hashed_, next), hashed_ / kPageBytes);
    hashed_ = next;
  }
}

void PageWriter::keep(uint64_t from, uint64_t to) {
  if (from == to) {
    return;
  }
  const std::span<const std::byte> bytes = part(from, to);
  kept_.emplace_back(from, std::vector<std::byte>(bytes.begin(), bytes.end()));
  kept_bytes_ += bytes.size();
  if (kept_bytes_ >= kMostKept) {
    write_kept();
  }
}

void PageWriter::write_kept() {
  for (const auto& [offset, bytes] : kept_) {
    disk_.write(file_, offset, bytes);
  }
  kept_.clear();
  kept_bytes_ = 0;
}

void PageWriter::flush(bool ends) {
  const uint64_t first = std::min(page_up(begin_), end_);
  const uint64_t last = std::max(first, page_down(end_));
  const uint64_t end = ends ? end_ : last;
  if (ends && end_ == size_) {
    hash(end_);
  } else if (ends && last < end_) {
    shared_pages_.push_back(last / kPageBytes);
  }
  if (!direct_) {
    if (begin_ < end) {
      disk_.write(file_, begin_, part(begin_, end));
    }
  } else if (last - first >= kLeastDirect) {
    keep(begin_, first);
    disk_.write(*direct_, first, part(first, last));
    keep(last, end);
  } else {
    keep(begin_, end);
  }
  if (!ends) {
    std::memmove(buffer_, buffer_ + (last - base_), end_ - last);
    base_ = last;
  }
  begin_ = end;
}

void PageWriter::finish() {
  flush(/*ends=*/true);
  write_kept();
  disk_.sync(file_);
}

}  // namespace lockstep::checkpoint
