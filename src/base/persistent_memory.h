// Memory that outlives the ranks that write to it. A launcher creates it and passes it to the
// workers of each round. It is released when the last process closes it.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// Environment variable with the file descriptor of a worker's memory.
inline constexpr const char* kPersistentMemoryVariable = "LOCKSTEP_KEPT_MEMORY";
/// The memory is a sparse file of kPersistentParts parts at multiples of kPersistentPartBytes.
inline constexpr int kPersistentParts = 4;
inline constexpr int64_t kPersistentPartBytes = int64_t{1} << 44;

/// Memory of one worker, initially empty. Move-only.
class PersistentMemory {
 public:
  PersistentMemory();
  PersistentMemory(PersistentMemory&& other) noexcept;
  PersistentMemory& operator=(PersistentMemory&& other) = delete;
  ~PersistentMemory();

  /// Returns -1 if the system does not support it.
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

/// Returns this process's descriptor, from the environment variable; -1 if the launcher passed
/// none. Child processes do not inherit it.
int persistent_memory();
/// Returns the bytes of memory that the file uses; 0 if there is no file.
int64_t kept_bytes(int memory);

}  // namespace lockstep
