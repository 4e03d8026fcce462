// Tests of the peak rate measurement.
#include "train/machine/peak.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/threads.h"

namespace lockstep::train {
namespace peak_test {

TEST(Peak, IsWhatTheMiddleRunDidAndNotTheBest) {
  EXPECT_DOUBLE_EQ(usual_rate(6, {3, 0.5, 2}), 3);
  EXPECT_DOUBLE_EQ(usual_rate(6, {4}), 1.5);
}

TEST(Peak, IsTheSumOfAllRanks) {
  comm::run_ranks(2, [](comm::Communicator& group) {
    const double all = measure_peak(group, c10::kCPU, c10::kFloat);
    at::Tensor most = at::full({1}, all, at::kDouble);
    group.all_reduce(most, comm::Reduce::kMax).wait();
    EXPECT_GT(all, 0);
    EXPECT_EQ(most.item<double>(), all);  // identical on every rank
  });
}

}  // namespace peak_test
}  // namespace lockstep::train
