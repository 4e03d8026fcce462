// Selects the byte loops for this processor.
#include "base/byte_loops_of.h"
#include "base/processor.h"

namespace lockstep {

#if defined(__x86_64__)
extern const ByteLoops kAvx2Loops;
#endif

const ByteLoops& byte_loops() {
#if defined(__x86_64__)
  if (instruction_set() >= InstructionSet::kAvx2) {
    return kAvx2Loops;
  }
#endif
  return kLoops;
}

int64_t first_not_finite(const std::byte* numbers, int64_t count, Exponent exponent) {
  for (int64_t i = 0; i < count; ++i) {
    uint64_t number = 0;  // little-endian
    std::memcpy(
        &number, numbers + static_cast<size_t>(i) * exponent.number_bytes, exponent.number_bytes);
    if ((number & exponent.bits) == exponent.bits) {
      return i;
    }
  }
  return -1;
}

}  // namespace lockstep
