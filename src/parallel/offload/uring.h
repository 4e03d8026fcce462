// Linux's io_uring for reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

struct io_uring;  // from liburing

namespace lockstep::parallel {

/// io_uring queue; used by one thread.
class Uring {
 public:
  static constexpr uint32_t kEntries = 64;  // maximum operations in flight
  enum class Operation { kRead, kWrite };
  struct Completion {
    uint64_t tag;
    int32_t result;  // bytes moved, or -errno
  };

  /// True if the system allows this process to use io_uring (containers often do not).
  static bool is_allowed();

  /// Throws Error (environment) if io_uring is not permitted.
  Uring();
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  /// Starts an operation; fewer than kEntries may be in flight.
  void submit(
      Operation operation,
      int descriptor,
      std::byte* bytes,
      uint32_t count,
      uint64_t offset,
      uint64_t tag);
  /// Blocks until an operation has ended.
  Completion wait();

 private:
  std::unique_ptr<io_uring> ring_;
};

}  // namespace lockstep::parallel
