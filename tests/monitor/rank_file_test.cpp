// Tests of ranks.jsonl and straggler detection.
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
      .checkpoint_s = {0, 0, 0},
      .moving_s = {0, 0, 0},
      .memory_bytes = {1, 2, 3}};
}

TEST(SlowRank, IsTheOneThatTheOthersWaitFor) {
  // All steps take equally long, because every rank waits for the slowest.
  const auto slow = slow_rank(of({4, 4, 4}, {0, 0, 0}, {2, 2, 0}));
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rank, 2U);
  EXPECT_EQ(slow->factor, 2);
  EXPECT_EQ(
      slow_text(of({4, 4, 4}, {0, 0, 0}, {2, 2, 0})),
      "rank 2 is slowed by its compute: without waiting for other ranks, a step takes 2.00 times "
      "the usual time");
}

TEST(SlowRank, IsToldByWhatItTakesLonger) {
  const auto hungry = slow_rank(of({4, 4, 4}, {1.5, 0, 0}, {0, 2, 2}));
  ASSERT_TRUE(hungry);
  EXPECT_EQ(hungry->rank, 0U);
  EXPECT_EQ(name_of(hungry->by), "data");
  RankShares saving = of({4, 4, 4}, {0.1, 0, 0}, {0.5, 0.5, 0.5});
  saving.checkpoint_s = {0.2, 3, 0.2};
  const auto disk = slow_rank(saving);
  ASSERT_TRUE(disk);
  EXPECT_EQ(disk->rank, 1U);
  EXPECT_NEAR(disk->factor, 6.5 / 3.7, 1e-9);
  EXPECT_EQ(name_of(disk->by), "checkpoint");
}

TEST(SlowRank, IsSlowInCommunicationByItsOwnPartOfIt) {
  RankShares shares = of({4, 4, 4}, {0, 0, 0}, {3, 3, 3});
  EXPECT_FALSE(slow_rank(shares));  // all of its waiting is for other ranks
  shares.moving_s = {0.1, 0.1, 2.1};
  const auto slow = slow_rank(shares);
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rank, 2U);
  EXPECT_NEAR(slow->factor, 3.1 / 1.1, 1e-9);
  EXPECT_EQ(name_of(slow->by), "communication");
  // Communication that overlaps compute does not delay other ranks.
  shares = of({4, 4, 4}, {0, 0, 0}, {0.1, 0.1, 0.1});
  shares.moving_s = {0.1, 0.1, 3.1};
  EXPECT_FALSE(slow_rank(shares));
}

TEST(SlowRank, ThatIsAStageOfItsOwnIsComparedWithItself) {
  const auto at = [](std::vector<double> compute) {
    RankShares shares = of({8, 8, 8}, {0, 0, 0}, {0, 0, 0});
    for (size_t rank = 0; rank < 3; ++rank) {
      shares.communication_wait_s[rank] = 8 - compute[rank];
    }
    shares.stages = {0, 1, 2};
    return shares;
  };
  const std::vector<std::vector<double>> before(kUsualParts, {2, 4, 3});
  const std::vector<double> usual = usual_compute(before);
  EXPECT_EQ(usual, (std::vector<double>{2, 4, 3}));
  EXPECT_FALSE(slow_rank(at({2, 6, 3})));  // no earlier times are known
  EXPECT_TRUE(usual_compute({before.begin(), before.end() - 1}).empty());
  EXPECT_FALSE(slow_rank(at({2, 4, 3}), usual));
  const auto slow = slow_rank(at({2, 6, 3}), usual);
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rank, 1U);
  EXPECT_EQ(slow->factor, 1.5);
  EXPECT_EQ(name_of(slow->by), "compute");
  EXPECT_FALSE(slow_rank(at({3, 6, 4.5}), usual));  // all ranks became slower by the same factor
  EXPECT_FALSE(slow_rank(at({1, 4, 3}), usual));    // one rank became faster
  // A rank that shares its stage with others is compared with them, not with its own earlier times.
  RankShares shares = at({2, 2, 3});
  shares.stages = {0, 0, 1};
  EXPECT_FALSE(slow_rank(shares, usual));
  const std::vector<std::vector<double>> uneven{{1}, {9}, {2}, {3}};
  EXPECT_EQ(usual_compute(uneven), std::vector<double>{2.5});
}

TEST(SlowRank, IsComparedWithTheRanksOfItsStage) {
  // The first stage has twice the work: neither the stage nor its ranks are slow.
  RankShares shares = {
      .step_s = {4, 4, 4, 4},
      .data_wait_s = {0, 0, 0, 0},
      .communication_wait_s = {0, 0, 2, 2},
      .checkpoint_s = {0, 0, 0, 0},
      .moving_s = {0, 0, 0, 0},
      .stages = {0, 0, 1, 1}};
  EXPECT_FALSE(slow_rank(shares));
  shares.stages = {};
  EXPECT_TRUE(slow_rank(shares));
  // A rank of the second stage is slow, although it does less work than the ranks of the first
  // stage.
  shares.stages = {0, 0, 1, 1, 0, 1};
  shares.step_s = {4, 4, 4, 4, 4, 4};
  shares.communication_wait_s = {0, 0, 2, 0.5, 0, 2};
  shares.data_wait_s = shares.checkpoint_s = shares.moving_s = {0, 0, 0, 0, 0, 0};
  const auto slow = slow_rank(shares);
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rank, 3U);
  EXPECT_EQ(slow->factor, 1.75);
  // In stages of one rank each, the time waiting for data is compared with all ranks.
  shares = of({4, 4, 4}, {0, 2, 0}, {0, 0, 3});
  shares.stages = {0, 1, 2};
  EXPECT_EQ(slow_rank(shares)->rank, 1U);
  EXPECT_EQ(name_of(slow_rank(shares)->by), "data");
}

TEST(SlowRank, IsNoneAmongEquals) {
  EXPECT_FALSE(slow_rank(of({4, 4, 4}, {0, 0, 0}, {1, 1.2, 1.3})));
  EXPECT_EQ(
      slow_text(of({4, 4, 4}, {0, 0, 0}, {1, 1.2, 1.3})),
      "no rank is slower than 1.2 times the usual time");
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
