// Best-fit arena: allocates from the smallest sufficient free run of a reserved address range.
#pragma once

#include <cstddef>
#include <map>

namespace lockstep::ops {

/// All sizes are multiples of kPage. Freed blocks stay resident until they are released, so that
/// reusing them causes no page faults. Adjacent free runs are merged, so that blocks of any size
/// can reuse the memory. Uses 2 MiB pages if available. Not thread-safe.
class HostArena {
 public:
  static constexpr size_t kPage = 4096;

  /// Reserves addresses without memory. Throws Error (out of memory) if the process may not reserve
  /// that many addresses.
  explicit HostArena(size_t bytes);
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  /// Allocates `size` bytes in the smallest sufficient free run (the lowest if several are equal).
  /// Returns null if no run is large enough. Throws Error (out of memory) if the system has no
  /// memory.
  std::byte* take(size_t size);
  /// Frees a block that take(size) returned.
  void give(std::byte* begin, size_t size);
  /// Returns free memory to the system, highest addresses first, until at most `bytes` are resident
  /// or no free memory is left.
  void release_down_to(size_t bytes);

  /// Returns the number of bytes that are allocated, or freed but not released.
  size_t resident() const { return resident_; }

 private:
  using Runs = std::map<size_t, size_t>;  // start offset -> length; runs are not adjacent
  static void add(Runs& runs, size_t begin, size_t size);
  /// Removes a range and returns the number of its bytes that were in `runs`.
  static size_t remove(Runs& runs, size_t begin, size_t size);
  void open(size_t end);
  size_t release(size_t begin, size_t end, size_t bytes);

  size_t size_ = 0;
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  std::byte* base_ = nullptr;
  size_t opened_ = 0;  // number of accessible bytes from the base on
  Runs free_;
  Runs untouched_;  // free runs without memory, which were never used or have been released
  size_t resident_ = 0;
};

}  // namespace lockstep::ops
