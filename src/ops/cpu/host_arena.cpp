// Best-fit allocator in a reserved address range.
#include "ops/cpu/host_arena.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include <sys/mman.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::ops {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kOpenedAtOnce = size_t{64} << 20;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

[[noreturn]] void throw_out_of_memory(size_t bytes) {
  throw Error(
      ErrorKind::kOutOfMemory,
      fmt::format("out of memory: cannot allocate {} bytes for tensors", bytes),
      "lower per_device_train_batch_size or data.sequence_length");
}

}  // namespace

HostArena::HostArena(size_t bytes) : size_(round_up(bytes, kHugePage)), mapped_(size_ + kHugePage) {
  // Inaccessible mappings do not count towards limits on committed memory.
  mapping_ = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    throw_out_of_memory(bytes);
  }
  base_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(mapping_), kHugePage));
  madvise(base_, size_, MADV_HUGEPAGE);  // only a hint; small pages also work
  free_.emplace(0, size_);
  untouched_.emplace(0, size_);
}

HostArena::~HostArena() {
  munmap(mapping_, mapped_);
}

std::byte* HostArena::take(size_t size) {
  auto found = free_.end();
  for (auto run = free_.begin(); run != free_.end(); ++run) {
    const bool is_shorter = found == free_.end() || run->second < found->second;
    if (run->second >= size && is_shorter) {
      found = run;
    }
  }
  if (found == free_.end()) {
    return nullptr;
  }
  const size_t begin = found->first;
  open(begin + size);
  remove(free_, begin, size);
  resident_ += remove(untouched_, begin, size);
  return base_ + begin;
}

void HostArena::give(std::byte* begin, size_t size) {
  add(free_, static_cast<size_t>(begin - base_), size);
}

void HostArena::release_down_to(size_t bytes) {
  for (auto run = free_.rbegin(); run != free_.rend() && resident_ > bytes; ++run) {
    size_t end = run->first + run->second;
    while (resident_ > bytes && end > run->first) {
      // Starts at the end, skips untouched runs and releases the memory between them.
      const auto next = untouched_.lower_bound(end);
      const auto before = next == untouched_.begin() ? Runs::value_type{} : *std::prev(next);
      const size_t until = before.first + before.second;
      end = until >= end ? before.first
                         : release(std::max(until, run->first), end, resident_ - bytes);
    }
  }
}

/// Releases up to `bytes` at the end of [begin, end) and returns the start of the released range.
size_t HostArena::release(size_t begin, size_t end, size_t bytes) {
  const size_t some = std::min(end - begin, round_up(bytes, kHugePage));
  madvise(base_ + end - some, some, MADV_DONTNEED);
  add(untouched_, end - some, some);
  resident_ -= some;
  return end - some;
}

void HostArena::open(size_t end) {
  if (end <= opened_) {
    return;
  }
  const size_t until = std::min(size_, round_up(end, kOpenedAtOnce));
  if (mprotect(base_ + opened_, until - opened_, PROT_READ | PROT_WRITE) != 0) {
    throw_out_of_memory(end);
  }
  opened_ = until;
}

void HostArena::add(Runs& runs, size_t begin, size_t size) {
  auto next = runs.lower_bound(begin);
  if (next != runs.end() && next->first == begin + size) {
    size += next->second;
    next = runs.erase(next);
  }
  if (next != runs.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second += size;
      return;
    }
  }
  runs.emplace_hint(next, begin, size);
}

size_t HostArena::remove(Runs& runs, size_t begin, size_t size) {
  const size_t end = begin + size;
  auto run = runs.upper_bound(begin);
  run = run == runs.begin() ? run : std::prev(run);
  size_t removed = 0;
  while (run != runs.end() && run->first < end) {
    const size_t from = run->first, until = run->first + run->second;
    if (until <= begin) {
      ++run;
      continue;
    }
    run = runs.erase(run);
    removed += std::min(until, end) - std::max(from, begin);
    if (from < begin) {
      runs.emplace(from, begin - from);
    }
    if (until > end) {
      runs.emplace(end, until - end);
    }
  }
  return removed;
}

}  // namespace lockstep::ops
