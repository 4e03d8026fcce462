// Hashes of bytes written by several ranks: sums over pages, to which each rank adds its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::checkpoint {

inline constexpr uint64_t kPageBytes = 4096;

/// Sums modulo 2^64 of both halves of the XXH3-128 of pages, each seeded with the page's number in
/// the file. A rank that has a whole page adds it, in any order.
struct PageSum {
  uint64_t high = 0, low = 0;

  /// Adds the pages from number `first`; the last one may be shortened by the end of the file.
  void add(std::span<const std::byte> bytes, uint64_t first);
  /// 32 digits.
  std::string hex() const;
};

}  // namespace lockstep::checkpoint
