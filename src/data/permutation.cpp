// Implements random permutations by a Feistel network.
#include "data/permutation.h"

#include <algorithm>
#include <bit>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"

namespace lockstep::data {
namespace {

constexpr uint64_t kRounds = 8;  // four are sufficient in theory; small ranges need more

}  // namespace

Permutation::Permutation(int64_t n, uint64_t key) : n_(static_cast<uint64_t>(n)), key_(key) {
  if (n < 1 || n > int64_t{1} << 62) {
    throw Error(ErrorKind::kInternal, fmt::format("a permutation of {} elements", n));
  }
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(n_ - 1)) + 1) / 2);
}

uint64_t Permutation::encrypt(uint64_t x) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = x >> half_bits_;
  uint64_t right = x & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = left ^ (random_bits(derive_key(key_, round), right) >> 32 & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator()(int64_t position) const {
  auto x = static_cast<uint64_t>(position);
  do {
    x = encrypt(x);
  } while (x >= n_);
  return static_cast<int64_t>(x);
}

}  // namespace lockstep::data
