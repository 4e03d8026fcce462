// Tests the byte loops.
#include "base/byte_loops.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <xxhash.h>

namespace lockstep {
namespace byte_loops_test {

template <class Bits>
const std::byte* bytes_of(const std::vector<Bits>& numbers) {
  return reinterpret_cast<const std::byte*>(numbers.data());
}

/// Sizes around a cache line at every alignment. `most`: the bits of the largest finite number.
template <class Bits>
void expect_copies_tell_what_is_not_finite(Bits exponent, Bits most) {
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  for (const size_t count : {0UL, 1UL, 31UL, 32UL, 33UL, 200UL}) {
    std::vector<Bits> numbers(count, most), copied(count);
    const auto copy = [&] {
      return byte_loops().copy_numbers(
          reinterpret_cast<std::byte*>(copied.data()),
          bytes_of(numbers),
          count * sizeof(Bits),
          {sizeof(Bits), exponent});
    };
    const auto first = [&] {
      return first_not_finite(
          bytes_of(numbers), static_cast<int64_t>(count), {sizeof(Bits), exponent});
    };
    EXPECT_TRUE(copy());
    EXPECT_EQ(copied, numbers);
    EXPECT_EQ(first(), -1);
    for (size_t at = 0; at < count; ++at) {  // infinity or NaN
      numbers[at] = static_cast<Bits>(at % 2 == 0 ? (exponent | kSign) : (exponent | 1));
      EXPECT_FALSE(copy()) << at << " of " << count;
      EXPECT_EQ(copied, numbers);
      EXPECT_EQ(first(), static_cast<int64_t>(at));
      numbers[at] = most;
    }
  }
}

TEST(ByteLoops, TellWhatIsNotFinite) {
  expect_copies_tell_what_is_not_finite<uint64_t>(0x7ff0000000000000, 0xffefffffffffffff);
  expect_copies_tell_what_is_not_finite<uint32_t>(0x7f800000, 0x7f7fffff);
  expect_copies_tell_what_is_not_finite<uint16_t>(0x7f80, 0xff7f);  // bfloat16
  expect_copies_tell_what_is_not_finite<uint16_t>(0x7c00, 0x7bff);  // float16
}

TEST(ByteLoops, HashAsTheLibraryDoes) {
  std::mt19937_64 random(3);
  for (const size_t count : {0UL, 1UL, 100UL, 240UL, 241UL, 4096UL, 10'000UL}) {
    std::vector<uint8_t> numbers(count);
    std::ranges::generate(numbers, random);
    const std::byte* const bytes = bytes_of(numbers);
    EXPECT_EQ(byte_loops().hash(bytes, count), XXH3_64bits(bytes, count)) << count;
    uint64_t high = 1, low = 2, wanted_high = 1, wanted_low = 2;
    byte_loops().add_pages(bytes, count, 4096, 7, high, low);
    for (size_t at = 0; at < count; at += 4096) {
      const auto hash =
          XXH3_128bits_withSeed(bytes + at, std::min<size_t>(4096, count - at), 7 + at / 4096);
      wanted_high += hash.high64;
      wanted_low += hash.low64;
    }
    EXPECT_EQ(high, wanted_high) << count;
    EXPECT_EQ(low, wanted_low) << count;
  }
}

}  // namespace byte_loops_test
}  // namespace lockstep
