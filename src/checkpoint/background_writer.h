// Writes that go on while the next bytes are gathered and hashed.
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

/// A thread writes one buffer after the other while its owner fills the next one. All but the
/// thread itself is of one owner.
class BackgroundWriter {
 public:
  static constexpr size_t kBufferBytes = 2 << 20;

  explicit BackgroundWriter(Disk& disk);
  /// Once all is written.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  Disk& disk() { return disk_; }
  /// Of another save: what went wrong with the one before is nothing to it.
  void begin();
  /// The buffer to be filled: kBufferBytes, on pages of the system, another after each write().
  std::byte* buffer() { return memory_.get() + given_ % kBuffers * kBufferBytes; }
  /// `bytes` of the buffer will be written to `file`, which lives until wait(). Returns when the
  /// next buffer is free. After an error nothing more is written.
  void write(File& file, uint64_t offset, std::span<const std::byte> bytes);
  /// Until all is written.
  void wait();
  /// What went wrong first, if something did.
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
