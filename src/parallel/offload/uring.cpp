#include "parallel/offload/uring.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::parallel {
namespace {

int set_up(io_uring_params& parameters) {
  return static_cast<int>(::syscall(__NR_io_uring_setup, Uring::kEntries, &parameters));
}

int enter(int descriptor, uint32_t to_submit, uint32_t to_complete, uint32_t flags) {
  int result = 0;
  do {
    result = static_cast<int>(::syscall(
        __NR_io_uring_enter, descriptor, to_submit, to_complete, flags, nullptr, size_t{0}));
  } while (result < 0 && errno == EINTR);
  return result;
}

Error failure(const char* what) {
  return {ErrorKind::kEnvironment, fmt::format("io_uring: {}: {}", what, std::strerror(errno))};
}

template <class T>
T* at(void* base, uint32_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(base) + offset);
}

}  // namespace

bool Uring::is_allowed() {
  io_uring_params parameters{};
  const int descriptor = set_up(parameters);
  if (descriptor < 0) {
    return false;
  }
  ::close(descriptor);
  return (parameters.features & IORING_FEAT_SINGLE_MMAP) != 0;
}

Uring::Uring() {
  io_uring_params parameters{};
  descriptor_ = set_up(parameters);
  if (descriptor_ < 0) {
    throw failure("setup");
  }
  rings_bytes_ = std::max(
      parameters.sq_off.array + parameters.sq_entries * sizeof(uint32_t),
      parameters.cq_off.cqes + parameters.cq_entries * sizeof(io_uring_cqe));
  entries_bytes_ = parameters.sq_entries * sizeof(io_uring_sqe);
  const auto map = [&](size_t bytes, off_t offset) {
    return ::mmap(
        nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor_, offset);
  };
  rings_ = map(rings_bytes_, IORING_OFF_SQ_RING);
  entries_ = map(entries_bytes_, IORING_OFF_SQES);
  if (rings_ == MAP_FAILED || entries_ == MAP_FAILED) {
    const Error error = failure("mmap");
    ::close(descriptor_);
    throw error;
  }
  submission_tail_ = at<uint32_t>(rings_, parameters.sq_off.tail);
  submission_array_ = at<uint32_t>(rings_, parameters.sq_off.array);
  submission_mask_ = *at<uint32_t>(rings_, parameters.sq_off.ring_mask);
  completion_head_ = at<uint32_t>(rings_, parameters.cq_off.head);
  completion_tail_ = at<uint32_t>(rings_, parameters.cq_off.tail);
  completion_mask_ = *at<uint32_t>(rings_, parameters.cq_off.ring_mask);
  completions_ = at<std::byte>(rings_, parameters.cq_off.cqes);
}

Uring::~Uring() {
  ::munmap(entries_, entries_bytes_);
  ::munmap(rings_, rings_bytes_);
  ::close(descriptor_);
}

void Uring::submit(
    Operation operation,
    int descriptor,
    std::byte* bytes,
    uint32_t count,
    uint64_t offset,
    uint64_t tag) {
  const uint32_t tail = *submission_tail_;  // written by this thread alone
  const uint32_t index = tail & submission_mask_;
  io_uring_sqe& entry = static_cast<io_uring_sqe*>(entries_)[index];
  entry = {};
  entry.opcode = operation == Operation::kRead ? IORING_OP_READ : IORING_OP_WRITE;
  entry.fd = descriptor;
  entry.addr = reinterpret_cast<uint64_t>(bytes);
  entry.len = count;
  entry.off = offset;
  entry.user_data = tag;
  submission_array_[index] = index;
  std::atomic_ref(*submission_tail_).store(tail + 1, std::memory_order_release);
  if (enter(descriptor_, 1, 0, 0) < 0) {
    throw failure("submit");
  }
}

Uring::Completion Uring::wait() {
  const uint32_t head = *completion_head_;  // likewise
  while (std::atomic_ref(*completion_tail_).load(std::memory_order_acquire) == head) {
    if (enter(descriptor_, 0, 1, IORING_ENTER_GETEVENTS) < 0) {
      throw failure("wait");
    }
  }
  const io_uring_cqe& entry = static_cast<io_uring_cqe*>(completions_)[head & completion_mask_];
  const Completion completion{entry.user_data, entry.res};
  std::atomic_ref(*completion_head_).store(head + 1, std::memory_order_release);
  return completion;
}

}  // namespace lockstep::parallel
