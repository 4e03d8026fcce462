// Wrapper of io_uring.
#include "parallel/offload/uring.h"

#include <cerrno>
#include <cstring>

#include <liburing.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::parallel {
namespace {

/// Throws Error if `result` of a liburing call is negative (-errno).
void check(const char* what, int result) {
  if (result < 0) {
    throw Error(
        ErrorKind::kEnvironment, fmt::format("io_uring: {}: {}", what, std::strerror(-result)));
  }
}

}  // namespace

bool Uring::is_allowed() {
  io_uring ring;
  if (io_uring_queue_init(kEntries, &ring, 0) < 0) {
    return false;
  }
  io_uring_queue_exit(&ring);
  return true;
}

Uring::Uring() : ring_(std::make_unique<io_uring>()) {
  check("setup", io_uring_queue_init(kEntries, ring_.get(), 0));
}

Uring::~Uring() {
  io_uring_queue_exit(ring_.get());
}

void Uring::submit(
    Operation operation,
    int descriptor,
    std::byte* bytes,
    uint32_t count,
    uint64_t offset,
    uint64_t tag) {
  io_uring_sqe* entry = io_uring_get_sqe(ring_.get());
  if (operation == Operation::kRead) {
    io_uring_prep_read(entry, descriptor, bytes, count, offset);
  } else {
    io_uring_prep_write(entry, descriptor, bytes, count, offset);
  }
  io_uring_sqe_set_data64(entry, tag);
  int result = 0;
  do {
    result = io_uring_submit(ring_.get());
  } while (result == -EINTR || result == -EAGAIN);  // the kernel temporarily lacks memory
  check("submit", result);
}

Uring::Completion Uring::wait() {
  io_uring_cqe* entry = nullptr;
  int result = 0;
  do {
    result = io_uring_wait_cqe(ring_.get(), &entry);
  } while (result == -EINTR);
  check("wait", result);
  const Completion completion{io_uring_cqe_get_data64(entry), entry->res};
  io_uring_cqe_seen(ring_.get(), entry);
  return completion;
}

}  // namespace lockstep::parallel
