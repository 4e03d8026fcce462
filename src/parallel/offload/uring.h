// Linux's io_uring, as much of it as reads and writes need, by system calls.
#pragma once

#include <cstddef>
#include <cstdint>

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
  int descriptor_ = -1;
  void* rings_ = nullptr;
  void* entries_ = nullptr;
  size_t rings_bytes_ = 0, entries_bytes_ = 0;
  uint32_t *submission_tail_ = nullptr, *submission_array_ = nullptr;
  uint32_t *completion_head_ = nullptr, *completion_tail_ = nullptr;
  uint32_t submission_mask_ = 0, completion_mask_ = 0;
  void* completions_ = nullptr;
};

}  // namespace lockstep::parallel
