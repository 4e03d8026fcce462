// Normal random numbers: the Box-Muller formula, equal bits on every processor and for every split.
#include "ops/normal_draws.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "base/counter_random.h"
#include "ops/cpu/vector.h"

namespace lockstep::ops {
namespace normal_draws_test {

constexpr uint64_t kKey = 0x123456789abcdefULL;
constexpr float kDeviation = 0.02F;

std::vector<float> draw(int64_t begin, int64_t count) {
  std::vector<float> numbers(static_cast<size_t>(count));
  draw_normal(kKey, kDeviation, begin, count, numbers.data());
  return numbers;
}

TEST(NormalDraws, ArePairsOfBoxAndMuller) {
  constexpr int64_t kCount = 200'000;
  const std::vector<float> drawn = draw(0, kCount);
  double squares = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const uint64_t word = random_bits(kKey, static_cast<uint64_t>(i / 2));
    const float u = (static_cast<float>(word >> 40) + 0.5F) * 0x1p-24F;
    const float turn = static_cast<float>((word >> 8) & 0xffffffU) * 0x1p-24F;
    const double angle = 2 * std::numbers::pi_v<float> * turn;
    const double radius = kDeviation * std::sqrt(-2 * std::log(static_cast<double>(u)));
    const double wanted = radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
    ASSERT_NEAR(drawn[static_cast<size_t>(i)], wanted, 3e-7 * radius + 1e-12) << i;
    squares += wanted * wanted;
  }
  EXPECT_NEAR(std::sqrt(squares / kCount), kDeviation, 0.01 * kDeviation);
}

/// Initial weights are the same on every processor.
TEST(NormalDraws, HaveTheSameBitsOnEveryProcessor) {
  const vector::Level best = vector::level();
  for (const vector::Level level :
       {vector::Level::kPlain, vector::Level::kAvx2, vector::Level::kAvx512}) {
    if (level > best) {
      continue;
    }
    vector::level() = level;
    uint64_t sum = 0;
    for (const float number : draw(0, 1 << 20)) {
      sum = mix_bits(sum ^ std::bit_cast<uint32_t>(number));
    }
    vector::level() = best;
    EXPECT_EQ(sum, 0x285f96f5e54783b7ULL) << static_cast<int>(level);
  }
}

TEST(NormalDraws, APartIsThatOfTheWhole) {
  const std::vector<float> whole = draw(0, 200);
  for (const int64_t begin : {0, 1, 2, 17}) {
    for (const int64_t count : {0, 1, 2, 15, 16, 17, 33, 150}) {
      const std::vector<float> part = draw(begin, count);
      EXPECT_EQ(std::memcmp(part.data(), whole.data() + begin, part.size() * sizeof(float)), 0)
          << begin << ' ' << count;
    }
  }
}

}  // namespace normal_draws_test
}  // namespace lockstep::ops
