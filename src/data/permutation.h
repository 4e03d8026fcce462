// Random permutation of n elements in constant memory.
#pragma once

#include <cstdint>

namespace lockstep::data {

/// Bijection of [0, n) that `key` selects. It is a balanced Feistel network over the smallest even
/// number of bits that can represent n - 1, applied repeatedly until the result is below n (cycle
/// walking: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). Each position takes
/// constant time: the network is applied at most four times on average.
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
