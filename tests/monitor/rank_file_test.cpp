#include "monitor/rank_file.h"

#include <gtest/gtest.h>

namespace lockstep::monitor {
namespace rank_file_test {

RankShares of(std::vector<double> step, std::vector<double> data, std::vector<double> ranks) {
  return {
      .step = 10,
      .steps = 10,
      .step_s = std::move(step),
      .data_wait_s = std::move(data),
      .communication_wait_s = std::move(ranks),
      .memory_bytes = {1, 2, 3}};
}

TEST(SlowRank, IsTheOneThatTheOthersWaitFor) {
  // All steps are as long: the others wait for rank 2, which computes twice as long.
  const auto slow = slow_rank(of({4, 4, 4}, {0, 0, 0}, {2, 2, 0}));
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rank, 2U);
  EXPECT_EQ(slow->factor, 2);
  EXPECT_FALSE(slow->by_data);
  EXPECT_EQ(
      slow_text(of({4, 4, 4}, {0, 0, 0}, {2, 2, 0})),
      "rank 2 is slow: without waiting for others a step takes 2.00 times the median there, by its "
      "own work");
}

TEST(SlowRank, IsToldByWhatItTakesLonger) {
  const auto hungry = slow_rank(of({4, 4, 4}, {1.5, 0, 0}, {0, 2, 2}));
  ASSERT_TRUE(hungry);
  EXPECT_EQ(hungry->rank, 0U);
  EXPECT_TRUE(hungry->by_data);
}

TEST(SlowRank, IsNoneAmongEquals) {
  EXPECT_FALSE(slow_rank(of({4, 4, 4}, {0, 0, 0}, {1, 1.2, 1.3})));
  EXPECT_EQ(
      slow_text(of({4, 4, 4}, {0, 0, 0}, {1, 1.2, 1.3})),
      "no rank is slower than 1.2 times the median");
  EXPECT_FALSE(slow_rank(of({4}, {0}, {0})));
  EXPECT_EQ(slow_text(of({4}, {0}, {0})), "");
  EXPECT_EQ(slow_text({}), "");
  EXPECT_FALSE(slow_rank(of({0, 0, 0}, {0, 0, 0}, {0, 0, 0})));
}

TEST(RankShares, OfManyStepsWeighMore) {
  RankShares first = of({1, 1, 1}, {0, 0, 0}, {0, 0, 0});
  RankShares second = of({5, 1, 1}, {0, 0, 0}, {0, 0, 0});
  second.step = 40;
  second.steps = 30;
  second.memory_bytes = {3, 2, 1};
  RankShares whole;
  merge_shares(whole, first);
  merge_shares(whole, second);
  EXPECT_EQ(whole.step, 40);
  EXPECT_EQ(whole.steps, 40);
  EXPECT_EQ(whole.step_s, (std::vector<double>{4, 1, 1}));
  EXPECT_EQ(whole.memory_bytes, (std::vector<double>{3, 2, 3}));
}

}  // namespace rank_file_test
}  // namespace lockstep::monitor
