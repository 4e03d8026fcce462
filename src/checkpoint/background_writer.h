// Writes buffers of a checkpoint in the background.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "base/file.h"
#include "checkpoint/disk.h"

namespace lockstep::checkpoint {

/// Writes buffers sequentially on a thread while the owner fills the next buffer. All methods must
/// be called on the same thread.
class BackgroundWriter {
 public:
  static constexpr size_t kBufferBytes = 2 << 20;

  explicit BackgroundWriter(Disk& disk);
  /// Waits until all buffers are written.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  Disk& disk() { return disk_; }
  /// Starts another save. Clears errors of the previous one.
  void begin();
  /// Returns the buffer to fill. It has kBufferBytes and is page-aligned. Each write() advances to
  /// the next buffer.
  std::byte* buffer() { return memory_.get() + given_ % kBuffers * kBufferBytes; }
  /// Queues `bytes` of the buffer to be written to `file`, which must live until wait() returns.
  /// Returns when the next buffer is free. After an error, nothing more is written.
  void write(File& file, uint64_t offset, std::span<const std::byte> bytes);
  /// Waits until all buffers are written.
  void wait();
  /// Rethrows the first error, if any.
  void throw_error();

 private:
  static constexpr size_t kBuffers = 3;
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  struct Job {
    File* file;
    uint64_t offset;
    std::span<const std::byte> bytes;
  };
  void run();

  Disk& disk_;
  std::unique_ptr<std::byte[], Free> memory_;
  std::array<Job, kBuffers> jobs_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t given_ = 0, written_ = 0;
  bool leaving_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace lockstep::checkpoint
