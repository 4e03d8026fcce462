// Random permutation of n elements in constant memory.
#pragma once

#include <cstdint>

namespace lockstep::data {

/// A bijection of [0, n) selected by `key`: a balanced Feistel network over the smallest even
/// number of bits that holds n - 1, with cycle walking back into the range (Black and Rogaway,
/// "Ciphers with Arbitrary Finite Domains", 2002). Constant time per position: at most four rounds
/// of walking are expected.
class Permutation {
 public:
  /// n must be between 1 and 2^62.
  Permutation(int64_t n, uint64_t key);
  int64_t operator()(int64_t position) const;

 private:
  uint64_t encrypt(uint64_t x) const;

  uint64_t n_, key_;
  int half_bits_;
};

}  // namespace lockstep::data
