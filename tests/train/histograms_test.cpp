// Histogram counts with the same bins on all ranks.
#include "train/histograms.h"

#include <numeric>

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "comm/threads.h"
#include "numbers.h"

namespace lockstep::train {
namespace histograms_test {

/// Number of values that are at most `limit`.
int64_t up_to(const at::Tensor& values, double limit) {
  return values.le(limit).sum().item<int64_t>();
}

void expect_histogram_of(const monitor::Histogram& found, const at::Tensor& values) {
  const at::Tensor exact = values.to(at::kDouble);
  EXPECT_EQ(found.min, exact.min().item<double>());
  EXPECT_EQ(found.max, exact.max().item<double>());
  EXPECT_NEAR(found.sum, exact.sum().item<double>(), 1e-9 * static_cast<double>(values.numel()));
  EXPECT_NEAR(found.sum_squares, exact.square().sum().item<double>(), 1e-9 * found.sum_squares);
  ASSERT_EQ(found.limits.size(), found.counts.size());
  double counted = 0;
  for (size_t i = 0; i < found.limits.size(); ++i) {
    counted += found.counts[i];
    EXPECT_EQ(static_cast<int64_t>(counted), up_to(exact, found.limits[i])) << found.limits[i];
  }
  EXPECT_EQ(static_cast<int64_t>(counted), values.numel());
}

TEST(BinnedCounts, CountWhatLiesBetweenTheirLimits) {
  const at::Tensor drawn = at::randn({10000});
  BinnedCounts counts(3);
  counts.add(0, drawn);
  counts.add(1, at::cat({at::zeros({5}), drawn * 1e-3}));
  counts.add(1, at::full({1}, 1e-30));
  expect_histogram_of(counts.histogram(0), drawn);
  const monitor::Histogram mixed = counts.histogram(1);
  EXPECT_EQ(std::accumulate(mixed.counts.begin(), mixed.counts.end(), 0.0), 10006);
  EXPECT_TRUE(counts.histogram(2).counts.empty());
}

TEST(BinnedCounts, TakeOtherTypesAndValuesBeyondTheBins) {
  BinnedCounts counts(1);
  counts.add(0, at::tensor({-1e9, 1.5, 3e9}, at::kFloat).to(at::kBFloat16));
  const monitor::Histogram found = counts.histogram(0);
  EXPECT_EQ(found.counts.front(), 1);
  EXPECT_EQ(found.counts.back(), 1);
  EXPECT_EQ(found.limits.back(), found.max);
}

TEST(BinnedCounts, OfRanksAreThoseOfOneRank) {
  const at::Tensor drawn = at::randn({999});
  monitor::Histogram found;
  comm::run_ranks(3, [&](comm::Communicator& world) {
    BinnedCounts counts(1);
    counts.add(0, drawn.narrow(0, world.rank() * 333, 333));
    counts.reduce(world);
    if (world.rank() == 1) {
      found = counts.histogram(0);
    }
  });
  expect_histogram_of(found, drawn);
}

}  // namespace histograms_test
}  // namespace lockstep::train
