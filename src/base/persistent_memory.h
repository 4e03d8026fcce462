// Memory that outlives the ranks that write to it. The launcher creates it and passes it to the
// workers of each round. It is released when the last process closes it.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// Environment variable with the file descriptor of a worker's memory.
inline constexpr const char* kPersistentMemoryVariable = "LOCKSTEP_KEPT_MEMORY";
/// The memory is a sparse file with kPersistentParts parts at multiples of kPersistentPartBytes.
inline constexpr int kPersistentParts = 4;
inline constexpr int64_t kPersistentPartBytes = int64_t{1} << 44;

/// Memory of one worker, initially empty. Move-only.
class PersistentMemory {
 public:
  PersistentMemory();
  PersistentMemory(PersistentMemory&& other) noexcept;
  PersistentMemory& operator=(PersistentMemory&& other) = delete;
  ~PersistentMemory();

  /// Returns the file descriptor, or -1 if the system does not support it.
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

/// Returns this process's descriptor from the environment variable, or -1 if the launcher passed
/// none. Child processes do not inherit the descriptor.
int persistent_memory();
/// Returns the number of bytes of memory that the file uses, or 0 if there is no file.
int64_t kept_bytes(int memory);

}  // namespace lockstep
