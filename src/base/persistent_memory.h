// Memory of a machine that outlives the ranks which write to it: a launcher makes it, and hands it
// to the workers of each round. It is gone with the last process that has it.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// The variable that tells a worker the descriptor of its memory.
inline constexpr const char* kPersistentMemoryVariable = "LOCKSTEP_KEPT_MEMORY";
/// It is a sparse file of so many parts, each at a multiple of this offset.
inline constexpr int kPersistentParts = 4;
inline constexpr int64_t kPersistentPartBytes = int64_t{1} << 44;

/// One worker's, empty. Move-only.
class PersistentMemory {
 public:
  PersistentMemory();
  PersistentMemory(PersistentMemory&& other) noexcept;
  PersistentMemory& operator=(PersistentMemory&& other) = delete;
  ~PersistentMemory();

  /// -1 where the system gives none.
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

/// This process's, from the variable; -1 where no launcher gave it any. What it starts does not get
/// it.
int persistent_memory();
/// What of the machine's memory is in one; 0 in none.
int64_t kept_bytes(int memory);

}  // namespace lockstep
