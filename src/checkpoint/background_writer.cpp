// Implements a thread that writes buffers to disk.
#include "checkpoint/background_writer.h"

#include <cstdlib>
#include <new>
#include <utility>

#include <sys/mman.h>

namespace lockstep::checkpoint {

void BackgroundWriter::Free::operator()(std::byte* bytes) const {
  std::free(bytes);
}

BackgroundWriter::BackgroundWriter(Disk& disk) : disk_(disk), jobs_{} {
  constexpr size_t kHugePage = 2 << 20, kBytes = kBuffers * kBufferBytes;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, kBytes)));
  if (memory_ == nullptr) {
    throw std::bad_alloc();
  }
  ::madvise(
      memory_.get(),
      kBytes,
      MADV_HUGEPAGE);  // with huge pages, a buffer is sent to the device in one piece
  thread_ = std::thread([this] { run(); });
}

BackgroundWriter::~BackgroundWriter() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundWriter::begin() {
  wait();
  const std::lock_guard lock(mutex_);
  error_ = nullptr;
}

void BackgroundWriter::write(File& file, uint64_t offset, std::span<const std::byte> bytes) {
  std::unique_lock lock(mutex_);
  jobs_.at(given_ % kBuffers) = {&file, offset, bytes};
  ++given_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return given_ - written_ < kBuffers; });
}

void BackgroundWriter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return given_ == written_; });
}

void BackgroundWriter::throw_error() {
  const std::lock_guard lock(mutex_);
  if (error_ != nullptr) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void BackgroundWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return given_ > written_ || leaving_; });
    if (given_ == written_) {
      return;
    }
    const Job job = jobs_.at(written_ % kBuffers);
    const bool goes_on = error_ == nullptr;
    lock.unlock();
    std::exception_ptr error;
    if (goes_on) {
      try {
        disk_.write(*job.file, job.offset, job.bytes);
      } catch (...) {
        error = std::current_exception();
      }
    }
    lock.lock();
    if (error != nullptr) {
      error_ = error;
    }
    ++written_;
    changed_.notify_all();
  }
}

}  // namespace lockstep::checkpoint
