// A random order of n things in constant memory.
#pragma once

#include <cstdint>

namespace lockstep::data {

/// A bijection of [0, n) drawn by `key`: a balanced Feistel network over the smallest even number
/// of bits that holds n - 1, and cycle walking back into the range (Black and Rogaway, "Ciphers
/// with Arbitrary Finite Domains", 2002). Any position costs the same: at most four rounds of
/// walking are expected.
class Permutation {
 public:
  /// n of at least 1 and at most 2^62.
  Permutation(int64_t n, uint64_t key);
  int64_t operator()(int64_t position) const;

 private:
  uint64_t encrypt(uint64_t x) const;

  uint64_t n_, key_;
  int half_bits_;
};

}  // namespace lockstep::data
