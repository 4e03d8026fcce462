// Reads and writes through Linux's io_uring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

struct io_uring;  // from liburing

namespace lockstep::parallel {

/// io_uring queue. Not thread-safe.
class Uring {
 public:
  static constexpr uint32_t kEntries = 64;  // maximum number of operations in flight
  enum class Operation { kRead, kWrite };
  struct Completion {
    uint64_t tag;
    int32_t result;  // number of bytes transferred, or -errno
  };

  /// Returns true if the system allows this process to use io_uring (containers often do not).
  static bool is_allowed();

  /// Throws Error (environment) if io_uring is not permitted.
  Uring();
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  /// Starts an operation. Fewer than kEntries operations may be in flight.
  void submit(
      Operation operation,
      int descriptor,
      std::byte* bytes,
      uint32_t count,
      uint64_t offset,
      uint64_t tag);
  /// Blocks until an operation has ended and returns its result.
  Completion wait();

 private:
  std::unique_ptr<io_uring> ring_;
};

}  // namespace lockstep::parallel
