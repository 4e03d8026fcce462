// A gradient far larger than those before is told, and what is ordinary is not.
#include "train/spikes.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace lockstep::train {
namespace spikes_test {

/// Norms as training has them: log-normal.
class Norms {
 public:
  double next() { return std::exp(normal_(engine_)); }

 private:
  std::mt19937 engine_{7};
  std::normal_distribution<double> normal_{0.0, 0.3};
};

TEST(Spikes, OrdinaryNormsAreNone) {
  Norms norms;
  Spikes spikes;
  for (int step = 0; step < 20'000; ++step) {
    EXPECT_FALSE(spikes.observe(norms.next())) << step;
  }
}

TEST(Spikes, OneFarBeyondTheQuantileIsToldWithIt) {
  Norms norms;
  Spikes spikes;
  for (size_t step = 0; step + 1 < Spikes::kFewest; ++step) {
    EXPECT_FALSE(spikes.observe(norms.next()));
  }
  EXPECT_FALSE(
      spikes.observe(1e6));  // nothing to compare with yet: it is kept, and widens the rest
  Spikes later;
  for (int step = 0; step < 300; ++step) {
    later.observe(norms.next());
  }
  const auto spike = later.observe(50);
  ASSERT_TRUE(spike);
  EXPECT_EQ(spike->value, 50);
  EXPECT_NEAR(spike->median, 1, 0.2);
  EXPECT_GT(spike->quantile, 1.5);
  EXPECT_LT(spike->quantile, 3);
  EXPECT_FALSE(later.observe(1));
  EXPECT_TRUE(later.observe(50));  // the first has not hidden it
}

TEST(Spikes, ARunThatGrowsForGoodIsToldForAWhile) {
  Spikes spikes;
  for (int step = 0; step < 300; ++step) {
    spikes.observe(1 + 0.01 * (step % 10));
  }
  int told = 0;
  for (int step = 0; step < 300; ++step) {
    told += spikes.observe(100 + step % 10) ? 1 : 0;
  }
  EXPECT_GT(told, 0);
  EXPECT_LT(told, 100);
}

TEST(Spikes, WhatIsNoNumberAndConstantsAreNone) {
  Spikes spikes;
  for (int step = 0; step < 300; ++step) {
    EXPECT_FALSE(spikes.observe(std::numeric_limits<double>::quiet_NaN()));
    EXPECT_FALSE(spikes.observe(std::numeric_limits<double>::infinity()));
    EXPECT_FALSE(spikes.observe(0));
  }
}

}  // namespace spikes_test
}  // namespace lockstep::train
