// Gradient norms far above previous ones are reported, ordinary ones are not.
#include "train/spikes.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace lockstep::train {
namespace spikes_test {

/// Log-normal norms, as in training.
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
  EXPECT_FALSE(spikes.observe(
      1e6));  // no previous values to compare with: it is added and raises the quantile
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
  EXPECT_TRUE(later.observe(50));  // the first spike has not hidden it
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

TEST(Spikes, LookingKeepsNothing) {
  Spikes spikes;
  for (int step = 0; step < 100; ++step) {
    spikes.observe(1 + 0.01 * (step % 10));
  }
  for (int i = 0; i < 300; ++i) {
    EXPECT_TRUE(spikes.look(100)) << i;
  }
  EXPECT_TRUE(spikes.observe(100));
}

/// The first value that is checked has 50 previous values.
TEST(Spikes, BeginAtTheFewestThatAreEnough) {
  Spikes spikes;
  for (size_t step = 0; step < Spikes::kFewest; ++step) {
    EXPECT_FALSE(spikes.look(1e9)) << step;
    spikes.observe(1 + 0.01 * static_cast<double>(step % 10));
  }
  EXPECT_TRUE(spikes.look(1e9));
}

/// A spike exceeds three times the quantile and is far from the median; neither alone is enough.
TEST(Spikes, LongTailsAreNotSpikes) {
  Spikes wide;
  for (int step = 0; step < 200; ++step) {
    wide.observe(step % 20 == 0 ? 10 : 1);  // median 1, quantile 10
  }
  EXPECT_FALSE(wide.look(45)) << "less than five times as far above the median as the quantile";
  EXPECT_TRUE(wide.look(47));
  Spikes narrow;
  for (int step = 0; step < 200; ++step) {
    narrow.observe(1 + 1e-6 * (step % 10));
  }
  EXPECT_FALSE(narrow.look(2.9)) << "no three times the quantile";
  EXPECT_TRUE(narrow.look(3.1));
  EXPECT_FALSE(narrow.look(-100)) << "below is no spike";
}

}  // namespace spikes_test
}  // namespace lockstep::train
