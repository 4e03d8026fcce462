// Hash of a file that several ranks write: a sum over its pages. Each rank adds its own pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::checkpoint {

inline constexpr uint64_t kPageBytes = 4096;

/// Sums of the high and low halves of the XXH3-128 of each page, modulo 2^64. The seed of each hash
/// is the page's number in the file. Pages may be added in any order. Each page must be added by a
/// rank that has all of its bytes.
struct PageSum {
  uint64_t high = 0, low = 0;

  /// Adds the pages of `bytes`. The number of the first one is `first`. The last page may be
  /// shorter if the file ends there.
  void add(std::span<const std::byte> bytes, uint64_t first);
  /// Returns the sum as 32 hex digits.
  std::string hex() const;
};

}  // namespace lockstep::checkpoint
