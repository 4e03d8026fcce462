// Hashes of bytes that several ranks write: sums over pages, to which each adds its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::checkpoint {

inline constexpr uint64_t kPageBytes = 4096;

/// The sums, modulo 2^64, of both halves of the XXH3-128 of pages, each seeded with its number in
/// the file: whoever has a page whole adds it, in any order.
struct PageSum {
  uint64_t high = 0, low = 0;

  /// Adds the pages from number `first` on; the last one may be cut off by the end of the file.
  void add(std::span<const std::byte> bytes, uint64_t first);
  /// 32 digits.
  std::string hex() const;
};

}  // namespace lockstep::checkpoint
