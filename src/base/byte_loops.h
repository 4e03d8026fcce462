// Loops over all bytes of a training state, compiled for two sets of instructions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// Infinity and NaN of a type of floating numbers: all bits of the exponent are set.
struct Exponent {
  size_t number_bytes = 0;  // 2, 4 or 8
  uint64_t bits = 0;
};

struct ByteLoops {
  /// XXH3-64.
  uint64_t (*hash)(const std::byte* bytes, size_t count);
  /// Adds the halves of the XXH3-128 of each page, seeded with its number, from `first` on; the
  /// last one may be shorter.
  void (*add_pages)(
      const std::byte* bytes,
      size_t count,
      size_t page_bytes,
      uint64_t first,
      uint64_t& high,
      uint64_t& low);
  /// Copies whole numbers, and says whether all of them are finite.
  bool (*copy_numbers)(std::byte* to, const std::byte* from, size_t count, Exponent exponent);
};

/// Those of this processor.
const ByteLoops& byte_loops();

/// The first of `count` numbers that is infinite or NaN; -1: none is.
int64_t first_not_finite(const std::byte* numbers, int64_t count, Exponent exponent);

}  // namespace lockstep
