// Loops over all bytes of a training state, compiled for two instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// Exponent bits of a floating-point type. All of them are set in infinity and NaN.
struct Exponent {
  size_t number_bytes = 0;  // 2, 4 or 8
  uint64_t bits = 0;
};

struct ByteLoops {
  /// Returns the XXH3-64 hash.
  uint64_t (*hash)(const std::byte* bytes, size_t count);
  /// Adds both halves of the XXH3-128 hash of each page, seeded with its page number, starting at
  /// page `first`. The last page may be shorter.
  void (*add_pages)(
      const std::byte* bytes,
      size_t count,
      size_t page_bytes,
      uint64_t first,
      uint64_t& high,
      uint64_t& low);
  /// Copies `count` numbers. Returns true if all of them are finite.
  bool (*copy_numbers)(std::byte* to, const std::byte* from, size_t count, Exponent exponent);
};

/// Returns the loops for this processor.
const ByteLoops& byte_loops();

/// Returns the index of the first infinity or NaN among `count` numbers, or -1 if all are finite.
int64_t first_not_finite(const std::byte* numbers, int64_t count, Exponent exponent);

}  // namespace lockstep
