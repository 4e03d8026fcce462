// Linux's io_uring, as much of it as reads and writes need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

struct io_uring;  // liburing's

namespace lockstep::parallel {

/// One thread calls.
class Uring {
 public:
  static constexpr uint32_t kEntries = 64;  // operations that may be under way
  enum class Operation { kRead, kWrite };
  struct Completion {
    uint64_t tag;
    int32_t result;  // bytes moved, or -errno
  };

  /// Whether the system lets this process have one (containers often do not).
  static bool is_allowed();

  /// Error (environment) where it is not allowed.
  Uring();
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  /// Starts an operation; fewer than kEntries may be under way.
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
