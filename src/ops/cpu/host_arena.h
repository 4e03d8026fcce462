// A range of addresses of which runs of bytes are given, each from the shortest free place that has
// room.
#pragma once

#include <cstddef>
#include <map>

namespace lockstep::ops {

/// Sizes are multiples of kPage. What was given once stays memory of the process when it is free,
/// until it is released: a place that is given again costs no page faults. Runs that are free and
/// touch are one, so blocks of any sizes take turns in the same memory. Lies on pages of 2 MiB
/// where the system has them. Not for several threads at once.
class HostArena {
 public:
  static constexpr size_t kPage = 4096;

  /// Reserves addresses alone. Throws Error (out of memory) where the process may not have so many.
  explicit HostArena(size_t bytes);
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  /// The begin of `size` bytes, in the shortest free run, the lowest of several; null where none is
  /// as long. Throws Error (out of memory) where the system refuses the memory.
  std::byte* take(size_t size);
  /// What take(size) gave.
  void give(std::byte* begin, size_t size);
  /// Gives free memory back to the system, the highest first, until at most `bytes` are left or
  /// none is free.
  void release_down_to(size_t bytes);

  /// Bytes that are given, or were and have not been released.
  size_t resident() const { return resident_; }

 private:
  using Runs = std::map<size_t, size_t>;  // begin, as an offset: length; they do not touch
  static void add(Runs& runs, size_t begin, size_t size);
  /// The bytes that were there.
  static size_t remove(Runs& runs, size_t begin, size_t size);
  void open(size_t end);
  size_t release(size_t begin, size_t end, size_t bytes);

  size_t size_ = 0;
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  std::byte* base_ = nullptr;
  size_t opened_ = 0;  // bytes from the base on that may be touched
  Runs free_;
  Runs untouched_;  // of the free ones: no memory, or none any more
  size_t resident_ = 0;
};

}  // namespace lockstep::ops
