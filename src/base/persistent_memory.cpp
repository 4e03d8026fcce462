// Implements sealed memory files that outlive the ranks.
#include "base/persistent_memory.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {

PersistentMemory::PersistentMemory()
    : descriptor_(::memfd_create("lockstep-kept", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  // Access beyond the end of a file raises SIGBUS. The seal prevents truncation.
  if (descriptor_ >= 0 && (::ftruncate(descriptor_, kPersistentParts * kPersistentPartBytes) != 0 ||
                           ::fcntl(descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)) {
    ::close(std::exchange(descriptor_, -1));
  }
}

PersistentMemory::PersistentMemory(PersistentMemory&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

PersistentMemory::~PersistentMemory() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

int persistent_memory() {
  const char* const text = std::getenv(kPersistentMemoryVariable);
  if (text == nullptr) {
    return -1;
  }
  int descriptor = -1;
  const char* const end = text + std::strlen(text);
  struct stat status{};
  const bool sound = std::from_chars(text, end, descriptor).ptr == end && descriptor > 2 &&
                     ::fstat(descriptor, &status) == 0 &&
                     status.st_size == kPersistentParts * kPersistentPartBytes &&
                     (::fcntl(descriptor, F_GET_SEALS) & F_SEAL_SHRINK) != 0 &&
                     ::fcntl(descriptor, F_GET_SEALS) >= 0;
  if (sound) {
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  }
  return sound ? descriptor : -1;
}

int64_t kept_bytes(int memory) {
  struct stat status{};
  return memory >= 0 && ::fstat(memory, &status) == 0 ? status.st_blocks * int64_t{512} : 0;
}

}  // namespace lockstep
