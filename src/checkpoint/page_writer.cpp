// Implements gathering, hashing and writing the pages of one rank.
#include "checkpoint/page_writer.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/manifest_text.h"

namespace lockstep::checkpoint {
namespace {

/// Minimum size of a direct write. For fewer bytes, waiting for the device takes longer than a copy
/// through the page cache.
constexpr uint64_t kLeastDirect = 128 << 10;
constexpr size_t kMostKept = 4 << 20;

constexpr uint64_t page_down(uint64_t at) {
  return at / kPageBytes * kPageBytes;
}

constexpr uint64_t page_up(uint64_t at) {
  return page_down(at + kPageBytes - 1);
}

}  // namespace

PageWriter::PageWriter(
    Disk& disk,
    const std::filesystem::path& path,
    uint64_t size,
    std::span<PageSum> sums,
    BackgroundWriter& behind)
    : disk_(disk),
      file_(path, File::Mode::kWrite),
      direct_(File::open_direct(path)),
      size_(size),
      sums_(sums),
      behind_(behind) {}

PageWriter::~PageWriter() {
  behind_.wait();
}

std::byte* PageWriter::place(uint64_t offset, size_t count) {
  if (offset != end_ || begin_ == end_) {
    flush(/*ends=*/true);
    begin_ = end_ = offset;
    base_ = page_down(offset);
    hashed_ = page_up(offset);
  } else if (end_ - base_ + count > BackgroundWriter::kBufferBytes) {
    flush(/*ends=*/false);
  }
  return behind_.buffer() + (end_ - base_);
}

void PageWriter::filled(size_t count) {
  end_ += count;
  hash(page_down(end_));  // hash the pages while they are in the level-1 cache
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
  return {behind_.buffer() + (from - base_), to - from};
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
    write_in_memory();
  }
}

void PageWriter::write_in_memory() {
  behind_.wait();
  behind_.throw_error();
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
  const std::byte* const filled = behind_.buffer();
  if (!direct_) {
    if (begin_ < end) {
      behind_.write(file_, begin_, part(begin_, end));
    }
  } else if (last - first >= kLeastDirect) {
    keep(begin_, first);
    keep(last, end);
    behind_.write(*direct_, first, part(first, last));
  } else {
    keep(begin_, end);
  }
  if (!ends) {
    std::memmove(behind_.buffer(), filled + (last - base_), end_ - last);
    base_ = last;
  }
  begin_ = end;
}

void PageWriter::finish() {
  flush(/*ends=*/true);
  write_in_memory();
  disk_.sync(file_);
}

}  // namespace lockstep::checkpoint
