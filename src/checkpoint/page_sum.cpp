// Every byte of a save goes through these loops: compiled with -O3, without libtorch's headers
// (cmake/Modules.cmake).
#include "checkpoint/page_sum.h"

#include <algorithm>

#include <xxhash.h>

#include "base/format.h"

namespace lockstep::checkpoint {

void PageSum::add(std::span<const std::byte> bytes, uint64_t first) {
  for (size_t at = 0; at < bytes.size(); at += kPageBytes) {
    const XXH128_hash_t hash = XXH3_128bits_withSeed(
        bytes.data() + at, std::min<size_t>(kPageBytes, bytes.size() - at), first++);
    high += hash.high64;
    low += hash.low64;
  }
}

std::string PageSum::hex() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

template <class Bits>
int64_t first_with_bits(const void* values, int64_t count, Bits exponent) {
  const auto* bits = static_cast<const Bits*>(values);
  constexpr int64_t kBlock = 4096;  // without a way out, so that a block is a few instructions
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    Bits found = 0;
    for (int64_t i = begin; i < end; ++i) {
      found |= static_cast<Bits>((bits[i] & exponent) == exponent);
    }
    for (int64_t i = begin; found != 0 && i < end; ++i) {
      if ((bits[i] & exponent) == exponent) {
        return i;
      }
    }
  }
  return -1;
}

template int64_t first_with_bits<uint16_t>(const void*, int64_t, uint16_t);
template int64_t first_with_bits<uint32_t>(const void*, int64_t, uint32_t);
template int64_t first_with_bits<uint64_t>(const void*, int64_t, uint64_t);

}  // namespace lockstep::checkpoint
