// Memory pool of Arrow with a limit.
#pragma once

#include <atomic>
#include <cstdint>

#include <arrow/memory_pool.h>
#include <arrow/status.h>

namespace lockstep::arrow_rows {

/// Arrow's default pool, which refuses to hold more than a number of bytes at once. Dictionaries
/// and compressed pages let a small file decode to any size.
class LimitedPool final : public arrow::ProxyMemoryPool {
 public:
  explicit LimitedPool(int64_t limit)
      : arrow::ProxyMemoryPool(arrow::default_memory_pool()),
        limit_(limit) {}

  using arrow::ProxyMemoryPool::Allocate;
  using arrow::ProxyMemoryPool::Reallocate;
  arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t** out) override {
    ARROW_RETURN_NOT_OK(check(size));
    return arrow::ProxyMemoryPool::Allocate(size, alignment, out);
  }
  arrow::Status Reallocate(
      int64_t old_size, int64_t new_size, int64_t alignment, uint8_t** bytes) override {
    ARROW_RETURN_NOT_OK(check(new_size - old_size));
    return arrow::ProxyMemoryPool::Reallocate(old_size, new_size, alignment, bytes);
  }

  /// True if an allocation was refused.
  bool is_exceeded() const { return is_exceeded_; }

 private:
  arrow::Status check(int64_t size) {
    if (size <= limit_ - bytes_allocated()) {
      return arrow::Status::OK();
    }
    is_exceeded_ = true;
    return arrow::Status::OutOfMemory("the limit is ", limit_, " bytes");
  }

  const int64_t limit_;
  std::atomic<bool> is_exceeded_{false};
};

}  // namespace lockstep::arrow_rows
